import { formatCount, plural } from "../ui/format";
import styles from "./Message.module.css";
import type { Live } from "./runs";

/** What is shown before the first word. */
export function Waiting({ live, empty, elsewhere }: { live: Live | undefined; empty: boolean; elsewhere: boolean }) {
    if (elsewhere) return <p className={styles.waiting}>Being received in another tab…</p>;
    const progress = live?.progress;
    if (progress && progress.total > 0) {
        return (
            <div className={styles.prefill}>
                <progress max={progress.total} value={progress.done} aria-label="Reading the prompt" />
                <span>
                    Reading the prompt: {formatCount(progress.done)} of {plural(progress.total, "token")}
                </span>
            </div>
        );
    }
    if (!empty) return null;
    return (
        <p className={styles.waiting}>
            <span className={styles.dots} aria-hidden>
                <i />
                <i />
                <i />
            </span>
            <span className="visually-hidden">Waiting for the answer</span>
        </p>
    );
}
