import { type ReactNode, useLayoutEffect, useRef, useState } from "react";

interface LazyProps {
    /** Height to keep free, in pixels, until the real one is known. */
    estimate: number;
    /** Whether it is on the page wherever it is, as what grows must be. */
    pinned?: boolean;
    children: ReactNode;
}

/** How far from the screen things are put on the page, and how far they are taken off again. */
const NEAR = "1200px 0px";

/** Content that is on the page only while it is near the screen; otherwise its room is. */
export function Lazy({ estimate, pinned = false, children }: LazyProps) {
    const ref = useRef<HTMLDivElement>(null);
    const [near, setNear] = useState(false);
    const height = useRef<number>(undefined);
    const shown = pinned || near;
    useLayoutEffect(() => {
        const element = ref.current;
        if (!element) return;
        observe(element, (isNear) => {
            // What somebody writes in stays.
            if (!isNear && element.contains(document.activeElement)) return;
            if (!isNear) height.current = element.offsetHeight;
            setNear(isNear);
        });
        return () => unobserve(element);
    }, []);
    return (
        <div ref={ref} style={shown ? undefined : { height: height.current ?? estimate }}>
            {shown && children}
        </div>
    );
}

const watched = new WeakMap<Element, (near: boolean) => void>();
let observer: IntersectionObserver | undefined;

/** One observer for all: thousands of them would each cost as much. */
function observe(element: Element, told: (near: boolean) => void): void {
    observer ??= new IntersectionObserver(
        (entries) => {
            for (const entry of entries) watched.get(entry.target)?.(entry.isIntersecting);
        },
        { rootMargin: NEAR, scrollMargin: NEAR } as IntersectionObserverInit,
    );
    watched.set(element, told);
    observer.observe(element);
}

function unobserve(element: Element): void {
    watched.delete(element);
    observer?.unobserve(element);
}
