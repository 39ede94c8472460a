import { Brain, ChevronRight, Zap } from "lucide-react";
import { memo, useId, useLayoutEffect, useRef, useState } from "react";
import type { ThinkingPart } from "../db/types";
import { Markdown } from "../markdown/Markdown";
import { Button } from "../ui/Button";
import { formatMs, plural } from "../ui/format";
import styles from "./Thinking.module.css";

interface ThinkingProps {
    part: ThinkingPart;
    /** About how many tokens; undefined where nobody counted. */
    tokens: number | undefined;
    /** Whether the model thinks at the moment. */
    active: boolean;
    /** Ends the thinking, where that can be done. */
    onAnswerNow?: (() => void) | undefined;
}

export const Thinking = memo(function Thinking({ part, tokens, active, onAnswerNow }: ThinkingProps) {
    const [chosen, setChosen] = useState<boolean>();
    const [asked, setAsked] = useState(false);
    const id = useId();
    const open = chosen ?? active;
    const body = useRef<HTMLDivElement>(null);
    // biome-ignore lint/correctness/useExhaustiveDependencies: each new piece moves the end.
    useLayoutEffect(() => {
        if (active && body.current) body.current.scrollTop = body.current.scrollHeight;
    }, [part.text, active]);
    const about = [
        tokens !== undefined && tokens > 0 && plural(tokens, "token"),
        part.ms !== undefined && !active && formatMs(part.ms),
    ].filter(Boolean);
    return (
        <section className={styles.thinking} aria-label="Thinking" data-active={active || undefined}>
            <div className={styles.head}>
                <button
                    type="button"
                    className={styles.toggle}
                    aria-expanded={open}
                    aria-controls={id}
                    onClick={() => setChosen(!open)}
                >
                    <ChevronRight size={15} aria-hidden className={styles.chevron} />
                    <Brain size={15} aria-hidden />
                    <span className={styles.word}>{active ? "Thinking" : "Thought"}</span>
                    <span className={styles.about}>{about.join(" · ")}</span>
                </button>
                {active && onAnswerNow && (
                    <Button
                        small
                        icon={Zap}
                        disabled={asked}
                        onClick={() => {
                            setAsked(true);
                            onAnswerNow();
                        }}
                    >
                        Answer now
                    </Button>
                )}
            </div>
            <div id={id} ref={body} className={styles.body} hidden={!open}>
                {open && <Markdown text={part.text} growing={active} />}
            </div>
        </section>
    );
});
