import { type KeyboardEvent, type ReactNode, useLayoutEffect, useRef, useState } from "react";
import { classes } from "./classes";
import styles from "./VirtualList.module.css";

interface VirtualListProps {
    label: string;
    count: number;
    /** Height of every row, in pixels. */
    rowHeight: number;
    row: (index: number) => ReactNode;
    /** A row that is to be seen; the list moves there when it changes. */
    reveal?: number | undefined;
    className?: string | undefined;
    onKeyDown?: (event: KeyboardEvent) => void;
}

/** Rows above and below those that are seen, so that scrolling shows no gaps. */
const SPARE = 12;

/** A list of any length of rows of one height, of which only those are there that can be seen. */
export function VirtualList({ label, count, rowHeight, row, reveal, className, onKeyDown }: VirtualListProps) {
    const box = useRef<HTMLElement>(null);
    const [view, setView] = useState({ top: 0, height: 600 });
    useLayoutEffect(() => {
        const element = box.current;
        if (!element) return;
        const look = () => setView({ top: element.scrollTop, height: element.clientHeight });
        const observer = new ResizeObserver(look);
        observer.observe(element);
        element.addEventListener("scroll", look, { passive: true });
        look();
        return () => {
            observer.disconnect();
            element.removeEventListener("scroll", look);
        };
    }, []);
    useLayoutEffect(() => {
        const element = box.current;
        if (!element || reveal === undefined) return;
        const top = reveal * rowHeight;
        if (top < element.scrollTop || top + rowHeight > element.scrollTop + element.clientHeight) {
            element.scrollTop = top - element.clientHeight / 3;
        }
    }, [reveal, rowHeight]);
    const first = Math.max(0, Math.floor(view.top / rowHeight) - SPARE);
    const last = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + SPARE);
    return (
        <section
            ref={box}
            className={classes(styles.box, className)}
            // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
            tabIndex={0}
            aria-label={label}
            onKeyDown={onKeyDown}
        >
            <div style={{ height: count * rowHeight }}>
                <div style={{ transform: `translateY(${first * rowHeight}px)` }}>
                    {Array.from({ length: Math.max(0, last - first) }, (_, i) => row(first + i))}
                </div>
            </div>
        </section>
    );
}
