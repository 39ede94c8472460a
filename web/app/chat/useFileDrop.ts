import { useEffect, useRef, useState } from "react";

/** Takes files that are dropped anywhere on the page, which the browser would go to instead. True while some are held over it. */
export function useFileDrop(take: (files: readonly File[]) => void): boolean {
    const [over, setOver] = useState(false);
    const latest = useRef(take);
    latest.current = take;
    useEffect(() => {
        const end = new AbortController();
        const on = (name: "dragover" | "dragleave" | "drop", listener: (event: DragEvent) => void) =>
            addEventListener(name, listener, { signal: end.signal });
        const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
        on("dragover", (event) => {
            if (!hasFiles(event)) return;
            event.preventDefault();
            if (event.dataTransfer) event.dataTransfer.dropEffect = "copy";
            setOver(true);
        });
        // Out of the window, not from one element to the next.
        on("dragleave", (event) => event.relatedTarget === null && setOver(false));
        on("drop", (event) => {
            setOver(false);
            if (!hasFiles(event)) return;
            event.preventDefault();
            latest.current([...(event.dataTransfer?.files ?? [])]);
        });
        return () => end.abort();
    }, []);
    return over;
}
