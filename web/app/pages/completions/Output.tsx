import { RotateCcw } from "lucide-react";
import { memo, type PointerEvent, useEffect, useRef, useState } from "react";
import { Button } from "../../ui/Button";
import { formatShare } from "../../ui/format";
import styles from "./Completions.module.css";
import { type Alternative, type Drawn, isWritable, probability, surprise } from "./tokens";

interface OutputProps {
    tokens: readonly Drawn[];
    running: boolean;
    /** Generates anew from a token on, with another in its place if one is given; undefined while that cannot be. */
    onRegenerate: ((index: number, instead?: Alternative) => void) | undefined;
}

/** The tokens that were drawn, coloured by how unlikely they were, and what else might have stood at the chosen place. */
export function Output({ tokens, running, onRegenerate }: OutputProps) {
    const [hover, setHover] = useState<number>();
    const [chosen, setChosen] = useState<number>();
    const at = chosen !== undefined && chosen < tokens.length ? chosen : hover;
    const token = at === undefined ? undefined : tokens[at];
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
    const toggle = (i: number | undefined) => setChosen(i === chosen ? undefined : i);
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
                onPointerOver={(event) => setHover(index(event))}
                onPointerLeave={() => setHover(undefined)}
                onClick={(event) => toggle(index(event))}
                onKeyDown={(event) => {
                    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
                    if (by === undefined) return;
                    event.preventDefault();
                    setChosen(Math.max(0, Math.min(tokens.length - 1, (at ?? -1) + by)));
                }}
            >
                {tokens.map((token, i) => (
                    // biome-ignore lint/suspicious/noArrayIndexKey: tokens are their places.
                    <TokenSpan key={i} token={token} index={i} at={i === at} />
                ))}
                {running && <span className={styles.caret} aria-hidden />}
            </section>
            <Scale />
            <aside className={styles.alternatives} aria-label="Alternatives">
                {token && at !== undefined ? (
                    <Alternatives
                        token={token}
                        pinned={at === chosen}
                        onRegenerate={onRegenerate && ((instead) => onRegenerate(at, instead))}
                    />
                ) : (
                    <p className="muted">
                        Point at a token to see what else might have come; click to keep it in view.
                    </p>
                )}
            </aside>
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

interface AlternativesProps {
    token: Drawn;
    pinned: boolean;
    onRegenerate: ((instead?: Alternative) => void) | undefined;
}

function Alternatives({ token, pinned, onRegenerate }: AlternativesProps) {
    const isListed = token.top.some(({ text }) => text === token.text);
    const rows = isListed ? token.top : [...token.top, token];
    return (
        <>
            <div className={styles.chosen}>
                <code>{visible(token.text)}</code>
                <span>{formatShare(probability(token))}</span>
                {pinned && (
                    <Button small icon={RotateCcw} disabled={!onRegenerate} onClick={() => onRegenerate?.()}>
                        Again from here
                    </Button>
                )}
            </div>
            <ol className={styles.top}>
                {rows.map((other) => (
                    <li key={other.text} data-drawn={other.text === token.text || undefined}>
                        <code>{visible(other.text)}</code>
                        <span className={styles.bar} aria-hidden>
                            <span style={{ width: `${100 * probability(other)}%` }} />
                        </span>
                        <span className={styles.share}>{formatShare(probability(other))}</span>
                        {pinned && (
                            <Button
                                small
                                look="quiet"
                                disabled={!onRegenerate || !isWritable(other)}
                                title={
                                    isWritable(other) ? undefined : "A part of a character cannot be written as text."
                                }
                                onClick={() => onRegenerate?.(other)}
                                aria-label={`Go on with ${visible(other.text)}`}
                            >
                                Take
                            </Button>
                        )}
                    </li>
                ))}
            </ol>
        </>
    );
}

function visible(text: string): string {
    return text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
}
