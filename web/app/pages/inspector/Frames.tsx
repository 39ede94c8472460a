import { useState } from "react";
import type { Recorded } from "../../api/recorder";
import { CopyButton } from "../../ui/CopyButton";
import { formatCount } from "../../ui/format";
import { VirtualList } from "../../ui/VirtualList";
import styles from "./Inspector.module.css";
import { gist, pretty } from "./timeline";

const ROW = 26;
const LONGEST_LINE = 300;

/** The events of a streamed answer with their times; the chosen one in full. */
export function Frames({ record }: { record: Recorded }) {
    const { frames, framesDropped } = record;
    const [chosen, setChosen] = useState(0);
    const at = Math.min(chosen, frames.length - 1);
    const frame = frames[at];
    const move = (event: React.KeyboardEvent) => {
        const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (by === undefined) return;
        event.preventDefault();
        setChosen(Math.max(0, Math.min(frames.length - 1, at + by)));
    };
    const all = () => frames.map(({ event, data }) => `event: ${event}\ndata: ${data}\n`).join("\n");
    return (
        <div className="stack">
            <VirtualList
                label="Events"
                className={styles.frames}
                count={frames.length}
                rowHeight={ROW}
                reveal={at}
                onKeyDown={move}
                row={(i) => {
                    const { at: time, event, data } = frames[i] ?? { at: 0, event: "", data: "" };
                    const gap = time - (frames[i - 1]?.at ?? 0);
                    return (
                        <button
                            key={i}
                            type="button"
                            tabIndex={-1}
                            className={styles.frame}
                            aria-pressed={i === at}
                            onClick={() => setChosen(i)}
                        >
                            <span className={styles.at}>{time} ms</span>
                            <span className={styles.gap}>+{gap}</span>
                            <span className={styles.event}>{event}</span>
                            <span className={styles.data}>{gist(data).slice(0, LONGEST_LINE)}</span>
                        </button>
                    );
                }}
            />
            {framesDropped > 0 && <p className="muted">{formatCount(framesDropped)} further events were not kept.</p>}
            {frame && (
                <div className={styles.code}>
                    <div className={styles.copy}>
                        <CopyButton label="Copy all events" text={all} />
                    </div>
                    {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys. */}
                    <pre tabIndex={0} data-part="event">
                        {pretty(frame.data)}
                    </pre>
                </div>
            )}
        </div>
    );
}
