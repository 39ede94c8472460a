import { memo, type PointerEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { type Chunk, chunks, named, shown, type Token } from "./pieces";
import styles from "./TokenText.module.css";

interface TokenTextProps {
    label: string;
    tokens: readonly Token[];
    /** The token that the pointer is at, here or elsewhere. */
    at: number | undefined;
    onAt: (index: number | undefined) => void;
    /** `all` tokens are coloured in turn, or the `special` ones alone. */
    colour: "all" | "special";
}

const COLOURS = 6;
/** What a line takes, and how many letters are in one, for the guess at what is not shown. */
const LINE_PX = 26;
const LETTERS = 90;

/** A text by its tokens. Of a long one only what is near the view is there. */
export function TokenText({ label, tokens, at, onAt, colour }: TokenTextProps) {
    const box = useRef<HTMLElement>(null);
    const before = useRef<Chunk[]>([]);
    const parts = useMemo(() => {
        before.current = chunks(tokens, before.current);
        return before.current;
    }, [tokens]);

    // One class on one element: rendering thousands again for every move of the pointer would be felt.
    // biome-ignore lint/correctness/useExhaustiveDependencies: new parts have new elements.
    useEffect(() => {
        const element = at === undefined ? null : box.current?.querySelector(`[data-i="${at}"]`);
        element?.classList.add(styles.at ?? "at");
        return () => element?.classList.remove(styles.at ?? "at");
    }, [at, parts]);

    const move = (event: PointerEvent) => {
        const index = (event.target as HTMLElement).dataset.i;
        onAt(index === undefined ? undefined : Number(index));
    };
    return (
        <section
            ref={box}
            className={styles.text}
            data-colour={colour}
            aria-label={label}
            // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
            tabIndex={0}
            onPointerOver={move}
            onPointerLeave={() => onAt(undefined)}
        >
            {parts.map((chunk) => (
                <Part key={chunk.start} chunk={chunk} />
            ))}
        </section>
    );
}

/** Some hundred tokens, there once they have come near the view. */
const Part = memo(function Part({ chunk }: { chunk: Chunk }) {
    const ref = useRef<HTMLDivElement>(null);
    const [near, setNear] = useState(chunk.start === 0);
    useLayoutEffect(() => {
        const element = ref.current;
        if (!element) return;
        const observer = new IntersectionObserver(([entry]) => entry && setNear(entry.isIntersecting), {
            rootMargin: "800px",
        });
        observer.observe(element);
        return () => observer.disconnect();
    }, []);
    if (!near) {
        const height = (chunk.lines + chunk.letters / LETTERS) * LINE_PX;
        return <div ref={ref} style={{ height }} />;
    }
    return (
        <div ref={ref} className={styles.part}>
            {chunk.tokens.map((token, i) => (
                <span
                    // biome-ignore lint/suspicious/noArrayIndexKey: tokens are their places.
                    key={i}
                    data-i={chunk.start + i}
                    data-c={(chunk.start + i) % COLOURS}
                    data-special={token.special}
                >
                    {shown(token)}
                </span>
            ))}
        </div>
    );
});

/** One token in words. */
export function TokenFacts({ token, index }: { token: Token | undefined; index: number | undefined }) {
    if (!token || index === undefined) return <p className={styles.facts}>Point at a token to see what it is.</p>;
    return (
        <p className={styles.facts}>
            <code className={styles.name}>{named(token)}</code> id <b>{token.id}</b>, token {index + 1}
            {token.special && ", a control token"}
        </p>
    );
}
