import { memo, useEffect, useRef, useState } from "react";
import styles from "./Markdown.module.css";

interface FormulaProps {
    text: string;
    display: boolean;
}

type Katex = typeof import("katex").default;

let katex: Promise<Katex> | undefined;

/** A formula as MathML, which browsers set without styles or fonts from elsewhere. Until KaTeX is there, and where it fails, the source is shown. */
export const Formula = memo(function Formula({ text, display }: FormulaProps) {
    const ref = useRef<HTMLSpanElement>(null);
    const [error, setError] = useState<string>();
    useEffect(() => {
        let there = true;
        katex ??= import("katex").then((module) => module.default);
        katex
            .then((katex) => {
                if (!there || !ref.current) return;
                katex.render(text, ref.current, {
                    displayMode: display,
                    output: "mathml",
                    trust: false,
                    strict: "ignore",
                });
                setError(undefined);
            })
            .catch((failure) => there && setError(failure instanceof Error ? failure.message : String(failure)));
        return () => {
            there = false;
        };
    }, [text, display]);
    return (
        <>
            <span ref={ref} className={display ? styles.display : undefined} hidden={error !== undefined} />
            {error !== undefined && <code title={error}>{text}</code>}
        </>
    );
});
