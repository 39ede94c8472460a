import { useEffect, useMemo, useState } from "react";
import { requestJson } from "../../api/client";
import { type ApiError, asApiError } from "../../api/errors";
import { CopyButton } from "../../ui/CopyButton";
import { AreaField, Switch } from "../../ui/Field";
import { formatCount, formatMemory } from "../../ui/format";
import { ErrorNotice } from "../../ui/Notice";
import { PageFrame } from "../../ui/PageFrame";
import { VirtualList } from "../../ui/VirtualList";
import { named, type Token } from "../tokens/pieces";
import { TokenFacts, TokenText } from "../tokens/TokenText";
import styles from "./Tokenizer.module.css";

/** A pause in typing after which the text is sent. */
const PAUSE_MS = 150;
const ROW = 24;
const FIRST = "Chickens scratch, peck & cluck: 3.14159 × 2 = 6.28318.\nÜber allen Gipfeln ist Ruh 🐔";

/** What the model's tokens are in a text. */
export default function TokenizerPage() {
    const [text, setText] = useState(FIRST);
    const [parseSpecial, setParseSpecial] = useState(true);
    const [addSpecial, setAddSpecial] = useState(false);
    const { tokens, error } = useTokens(text, parseSpecial, addSpecial);
    const [at, setAt] = useState<number>();
    return (
        <PageFrame title="Tokenizer" lead="How the model's vocabulary cuts a text.">
            <div className={styles.form}>
                <AreaField
                    label="Text"
                    value={text}
                    onChange={(event) => setText(event.target.value)}
                    className={styles.area}
                    spellCheck={false}
                />
                <div className={styles.options}>
                    <Switch
                        label="Control tokens"
                        hint="spellings such as <|im_start|> are the tokens"
                        checked={parseSpecial}
                        onChange={(event) => setParseSpecial(event.target.checked)}
                    />
                    <Switch
                        label="Begin of text"
                        hint="added where the vocabulary asks for it"
                        checked={addSpecial}
                        onChange={(event) => setAddSpecial(event.target.checked)}
                    />
                </div>
            </div>
            {error && <ErrorNotice error={error} />}
            <Counts text={text} tokens={tokens} />
            <TokenFacts token={at === undefined ? undefined : tokens[at]} index={at} />
            <div className={styles.views}>
                <TokenText label="Tokens" tokens={tokens} at={at} onAt={setAt} colour="all" />
                <Ids tokens={tokens} at={at} onAt={setAt} />
            </div>
        </PageFrame>
    );
}

interface Tokenized {
    tokens: readonly Token[];
    error: ApiError | undefined;
}

const none: Tokenized = { tokens: [], error: undefined };

/** The tokens of a text, asked for when the typing pauses. The last ones stay until the next are there. */
function useTokens(text: string, parseSpecial: boolean, addSpecial: boolean): Tokenized {
    const [told, setTold] = useState(none);
    useEffect(() => {
        const abort = new AbortController();
        const ask = async () => {
            const body = { content: text, with_pieces: true, parse_special: parseSpecial, add_special: addSpecial };
            try {
                const options = { body, signal: abort.signal, record: false };
                const { tokens } = await requestJson<{ tokens: Token[] }>("/tokenize", options);
                if (!abort.signal.aborted) setTold({ tokens, error: undefined });
            } catch (failure) {
                if (!abort.signal.aborted) setTold({ tokens: [], error: asApiError(failure) });
            }
        };
        const timer = setTimeout(() => void ask(), PAUSE_MS);
        return () => {
            clearTimeout(timer);
            abort.abort();
        };
    }, [text, parseSpecial, addSpecial]);
    return told;
}

function Counts({ text, tokens }: { text: string; tokens: readonly Token[] }) {
    const size = useMemo(() => ({ bytes: new TextEncoder().encode(text).length, letters: [...text].length }), [text]);
    const ratio = tokens.length > 0 ? (size.letters / tokens.length).toFixed(2) : "–";
    const figures: [string, string][] = [
        ["Tokens", formatCount(tokens.length)],
        ["Characters", formatCount(size.letters)],
        ["Size", formatMemory(size.bytes)],
        ["Characters a token", ratio],
    ];
    return (
        <dl className={styles.counts}>
            {figures.map(([name, value]) => (
                <div key={name}>
                    <dt>{name}</dt>
                    <dd>{value}</dd>
                </div>
            ))}
        </dl>
    );
}

interface IdsProps {
    tokens: readonly Token[];
    at: number | undefined;
    onAt: (index: number | undefined) => void;
}

/** The tokens one below the other, with their ids. */
function Ids({ tokens, at, onAt }: IdsProps) {
    return (
        <section className={styles.ids} aria-label="Token ids">
            <header>
                <span>Ids</span>
                <CopyButton label="Copy the ids" text={() => JSON.stringify(tokens.map(({ id }) => id))} />
            </header>
            <VirtualList
                label="Ids of the tokens"
                className={styles.list}
                count={tokens.length}
                rowHeight={ROW}
                reveal={at}
                row={(i) => {
                    const token = tokens[i];
                    if (!token) return null;
                    return (
                        <div
                            key={i}
                            className={styles.row}
                            data-at={i === at || undefined}
                            data-special={token.special}
                            onPointerEnter={() => onAt(i)}
                            onPointerLeave={() => onAt(undefined)}
                        >
                            <span className={styles.index}>{i + 1}</span>
                            <span className={styles.id}>{token.id}</span>
                            <span className={styles.piece}>{named(token)}</span>
                        </div>
                    );
                }}
            />
        </section>
    );
}
