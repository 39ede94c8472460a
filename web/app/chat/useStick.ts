import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

/** Pixels from the end that still count as the end. */
const NEAR = 48;

interface Stick {
    scroller: RefObject<HTMLDivElement | null>;
    content: RefObject<HTMLDivElement | null>;
    /** Whether the end is in sight. */
    atEnd: boolean;
    toEnd: () => void;
}

/** A scrolled column that stays at its end while it grows, until the person scrolls away. `key` names what is in it. */
export function useStick(key: string): Stick {
    const scroller = useRef<HTMLDivElement>(null);
    const content = useRef<HTMLDivElement>(null);
    const stuck = useRef(true);
    const [atEnd, setAtEnd] = useState(true);
    const toEnd = useCallback(() => {
        const box = scroller.current;
        if (!box) return;
        stuck.current = true;
        setAtEnd(true);
        box.scrollTop = box.scrollHeight;
    }, []);
    // biome-ignore lint/correctness/useExhaustiveDependencies: another conversation begins at its end.
    useLayoutEffect(toEnd, [key, toEnd]);
    useEffect(() => {
        const box = scroller.current;
        const inside = content.current;
        if (!box || !inside) return;
        let last = box.scrollTop;
        const scrolled = () => {
            const left = box.scrollHeight - box.scrollTop - box.clientHeight;
            // Growing moves the end away; only the person moves up.
            if (left <= NEAR) stuck.current = true;
            else if (box.scrollTop < last) stuck.current = false;
            last = box.scrollTop;
            setAtEnd(stuck.current || left <= NEAR);
        };
        const observer = new ResizeObserver(() => {
            if (stuck.current) box.scrollTop = box.scrollHeight;
        });
        box.addEventListener("scroll", scrolled, { passive: true });
        observer.observe(inside);
        observer.observe(box);
        return () => {
            box.removeEventListener("scroll", scrolled);
            observer.disconnect();
        };
    }, []);
    return { scroller, content, atEnd, toEnd };
}
