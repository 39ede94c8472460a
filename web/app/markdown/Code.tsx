import { Download, WrapText } from "lucide-react";
import { memo, type ReactNode, useDeferredValue, useEffect, useState } from "react";
import { IconButton } from "../ui/Button";
import { CopyButton } from "../ui/CopyButton";
import { classes } from "../ui/classes";
import { download } from "../ui/download";
import styles from "./Code.module.css";
import { extensionOf, type Highlighter, loadHighlighter } from "./highlight";

/** Lines that are laid out together; those away from the screen are left to the browser to skip. */
const CHUNK = 80;
/** Characters beyond which colours would hold the page up. */
const COLOURED = 60_000;
/** The same while the code grows, as it is coloured again and again. */
const COLOURED_GROWING = 12_000;

interface CodeProps {
    language: string;
    text: string;
    growing?: boolean;
}

export const Code = memo(function Code({ language, text, growing = false }: CodeProps) {
    const [wrap, setWrap] = useState(false);
    const name = language.toLowerCase();
    const save = () => download(`code.${extensionOf(name)}`, text, "text/plain");
    return (
        <section className={styles.code} aria-label={`Code${language ? `, ${language}` : ""}`}>
            <header className={styles.header}>
                <span>{language || "text"}</span>
                <span className={styles.tools}>
                    <IconButton
                        label="Wrap lines"
                        icon={WrapText}
                        small
                        aria-pressed={wrap}
                        onClick={() => setWrap(!wrap)}
                    />
                    <IconButton label="Save as a file" icon={Download} small onClick={save} />
                    <CopyButton label="Copy code" text={() => text} />
                </span>
            </header>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: code wider than the page is scrolled by the keyboard too. */}
            <pre tabIndex={0} className={classes(wrap && styles.wrap)}>
                <code>
                    {text.length <= (growing ? COLOURED_GROWING : COLOURED) && name ? (
                        <Coloured language={name} text={text} />
                    ) : (
                        <Plain text={text} />
                    )}
                </code>
            </pre>
        </section>
    );
});

function Coloured({ language, text }: { language: string; text: string }) {
    const [highlight, setHighlight] = useState<{ with: Highlighter | undefined }>();
    useEffect(() => {
        let there = true;
        void loadHighlighter(language).then((loaded) => there && setHighlight({ with: loaded }));
        return () => {
            there = false;
        };
    }, [language]);
    const shown = useDeferredValue(text);
    if (!highlight?.with) return <Plain text={text} />;
    return (
        <>
            <Colours text={shown} highlight={highlight.with} />
            {text.startsWith(shown) ? text.slice(shown.length) : ""}
        </>
    );
}

const Colours = memo(function Colours({ text, highlight }: { text: string; highlight: Highlighter }): ReactNode {
    return highlight(text);
});

function Plain({ text }: { text: string }) {
    const lines = text.split("\n");
    if (lines.length <= CHUNK) return text;
    const chunks = Array.from({ length: Math.ceil(lines.length / CHUNK) }, (_, index) =>
        lines.slice(index * CHUNK, index * CHUNK + CHUNK),
    );
    return chunks.map((chunk, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: chunks keep their places while the code grows.
        <Chunk key={index} text={`${chunk.join("\n")}\n`} lines={chunk.length} />
    ));
}

const Chunk = memo(function Chunk({ text, lines }: { text: string; lines: number }) {
    return (
        <span className={styles.chunk} style={{ containIntrinsicBlockSize: `auto ${lines * 1.5}em` }}>
            {text}
        </span>
    );
});
