import { memo, type PointerEvent, useEffect, useRef } from "react";
import styles from "./Completions.module.css";
import { type Drawn, isWritable, surprise } from "./tokens";
import type { Pointed } from "./usePointed";

interface OutputProps {
    tokens: readonly Drawn[];
    running: boolean;
    pointed: Pointed;
}

/** The tokens that were drawn, coloured by how unlikely they were. */
export function Output({ tokens, running, pointed }: OutputProps) {
    const { at, hover, toggle, choose } = pointed;
    const box = useRef<HTMLElement>(null);

    // biome-ignore lint/correctness/useExhaustiveDependencies: each new token may push the last out of sight.
    useEffect(() => {
        const element = box.current;
        if (running && element) element.scrollTop = element.scrollHeight;
    }, [tokens.length, running]);

    const index = (event: PointerEvent | React.MouseEvent) => {
        const i = (event.target as HTMLElement).dataset.i;
        return i === undefined ? undefined : Number(i);
    };
    if (tokens.length === 0) {
        return <p className="muted">{running ? "The prompt is being read…" : "Nothing generated yet."}</p>;
    }
    return (
        <div className={styles.output}>
            <section
                ref={box}
                className={styles.tokens}
                aria-label="Generated tokens. Left and right choose one."
                // biome-ignore lint/a11y/noNoninteractiveTabindex: tokens are chosen by the arrow keys.
                tabIndex={0}
                onPointerOver={(event) => hover(index(event))}
                onPointerLeave={() => hover(undefined)}
                onClick={(event) => toggle(index(event))}
                onKeyDown={(event) => {
                    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
                    if (by === undefined) return;
                    event.preventDefault();
                    choose(Math.max(0, Math.min(tokens.length - 1, (at ?? -1) + by)));
                }}
            >
                {tokens.map((token, i) => (
                    // biome-ignore lint/suspicious/noArrayIndexKey: tokens are their places.
                    <TokenSpan key={i} token={token} index={i} at={i === at} />
                ))}
                {running && <span className={styles.caret} aria-hidden />}
            </section>
            <Scale />
        </div>
    );
}

/** Stand before what begins with a character that has no width, so that it can be seen and pointed at. They are not copied. */
const signs: Record<string, string> = { "\n": "↵", "\r": "␍", "\t": "⇥" };

const TokenSpan = memo(function TokenSpan({ token, index, at }: { token: Drawn; index: number; at: boolean }) {
    return (
        <span
            data-i={index}
            data-surprise={surprise(token)}
            data-at={at || undefined}
            data-sign={signs[token.text.charAt(0)]}
            className={styles.token}
        >
            {isWritable(token) ? token.text : "�"}
        </span>
    );
});

function Scale() {
    const steps = ["90 %", "60 %", "30 %", "10 %", "less"];
    return (
        <p className={styles.scale}>
            Likelier than
            {steps.map((text, step) => (
                <span key={text} data-surprise={step} className={styles.token}>
                    {text}
                </span>
            ))}
        </p>
    );
}
