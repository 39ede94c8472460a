import { useEffect } from "react";

/**
 * Does `work` at once and then again and again, `ms` after it ended, while the component is there and the page can be seen.
 * Failures are the work's own matter.
 */
export function usePoll(work: (signal: AbortSignal) => Promise<void>, ms: number): void {
    useEffect(() => {
        const abort = new AbortController();
        let timer: ReturnType<typeof setTimeout> | undefined;
        let working = false;
        const round = async () => {
            if (working || document.visibilityState === "hidden") return;
            working = true;
            await work(abort.signal);
            working = false;
            if (!abort.signal.aborted) timer = setTimeout(() => void round(), ms);
        };
        const seen = () => {
            clearTimeout(timer);
            void round();
        };
        document.addEventListener("visibilitychange", seen);
        void round();
        return () => {
            abort.abort();
            clearTimeout(timer);
            document.removeEventListener("visibilitychange", seen);
        };
    }, [work, ms]);
}
