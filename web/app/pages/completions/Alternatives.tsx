import { RotateCcw } from "lucide-react";
import { Button } from "../../ui/Button";
import { Card } from "../../ui/Card";
import { formatShare } from "../../ui/format";
import styles from "./Completions.module.css";
import { type Alternative, type Drawn, isWritable, probability } from "./tokens";
import type { Pointed } from "./usePointed";

interface AlternativesProps {
    tokens: readonly Drawn[];
    pointed: Pointed;
    /** Generates anew from a token on, with another in its place if one is given; undefined while that cannot be. */
    onRegenerate: ((index: number, instead?: Alternative) => void) | undefined;
}

/** What else might have stood at the place that is pointed at. It stays in sight beside the tokens. */
export function Alternatives({ tokens, pointed: { at, pinned }, onRegenerate }: AlternativesProps) {
    const token = at === undefined ? undefined : tokens[at];
    return (
        <aside className={styles.alternatives} aria-label="Alternatives">
            <Card title="Alternatives">
                {token && at !== undefined ? (
                    <Rows
                        token={token}
                        pinned={pinned}
                        onRegenerate={onRegenerate && ((instead) => onRegenerate(at, instead))}
                    />
                ) : (
                    <p className="muted">
                        Point at a token to see what else might have come; click to keep it in view.
                    </p>
                )}
            </Card>
        </aside>
    );
}

interface RowsProps {
    token: Drawn;
    pinned: boolean;
    onRegenerate: ((instead?: Alternative) => void) | undefined;
}

function Rows({ token, pinned, onRegenerate }: RowsProps) {
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
