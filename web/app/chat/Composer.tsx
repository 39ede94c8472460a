import { ArrowUp, Paperclip, Square } from "lucide-react";
import { type ClipboardEvent, type KeyboardEvent, memo, type ReactNode, useEffect, useRef, useState } from "react";
import { countTokens } from "../api/tokens";
import { AttachError } from "../attach/problem";
import { readAttachment } from "../attach/read";
import type { Part } from "../db/types";
import { Button, IconButton } from "../ui/Button";
import { classes } from "../ui/classes";
import { formatCount, formatFigure, plural } from "../ui/format";
import { Attachments, Refused } from "./Attachments";
import styles from "./Composer.module.css";
import { type Attachment, type Draft, keepDraft, loadDraft } from "./drafts";
import { useFileDrop } from "./useFileDrop";

interface ComposerProps {
    /** Names the draft: a conversation, or that of a new one. */
    draftKey: string;
    vision: boolean;
    /** Whether an answer is under way. */
    busy: boolean;
    /** Tokens that the conversation has so far, as the last answer told. */
    before: number;
    /** Most tokens of a conversation; undefined while the server has not told. */
    context: number | undefined;
    /** Settings that stand at hand. */
    quick: ReactNode;
    onSend: (parts: Part[]) => void;
    onStop: () => void;
    /** Edits what was said last. */
    onEditLast: () => void;
}

/** Pasted texts above this length become attachments. */
const LONG_PASTE = 8000;

/** Where messages are written. It keeps what is written to itself, so that typing waits for nothing else on the page. */
export const Composer = memo(function Composer(props: ComposerProps) {
    const { draftKey, vision, busy, onSend, onStop, onEditLast } = props;
    const [draft, setDraft] = useState<Draft>(() => loadDraft(draftKey));
    const [reading, setReading] = useState(0);
    const [refused, setRefused] = useState<readonly string[]>([]);
    const field = useRef<HTMLTextAreaElement>(null);
    const picker = useRef<HTMLInputElement>(null);
    useKeptDraft(draftKey, draft);
    useEffect(() => focusField(field.current), []);
    const tokens = useTokens(draft);
    const empty = draft.text.trim() === "" && draft.attachments.length === 0;

    const send = () => {
        if (empty || busy || reading > 0) return;
        const said: Part[] = draft.text.trim() ? [{ kind: "text", text: draft.text.trim() }] : [];
        onSend([...draft.attachments, ...said]);
        setDraft({ text: "", attachments: [] });
        setRefused([]);
        focusField(field.current);
    };
    const attach = async (files: readonly File[]) => {
        setReading((n) => n + files.length);
        setRefused([]);
        for (const file of files) {
            const read = await readOne(file, vision);
            setReading((n) => n - 1);
            if (typeof read === "string") setRefused((others) => [...others, read]);
            else setDraft((draft) => ({ ...draft, attachments: [...draft.attachments, read] }));
        }
    };
    const keys = (event: KeyboardEvent<HTMLTextAreaElement>) => {
        if (event.nativeEvent.isComposing) return;
        const newline = event.shiftKey || event.altKey || matchMedia("(pointer: coarse)").matches;
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey || !newline)) {
            event.preventDefault();
            send();
        }
        if (event.key === "ArrowUp" && empty) {
            event.preventDefault();
            onEditLast();
        }
    };
    const paste = (event: ClipboardEvent) => {
        const files = [...event.clipboardData.files];
        const text = event.clipboardData.getData("text/plain");
        if (files.length > 0 && text === "") {
            event.preventDefault();
            void attach(files);
        } else if (text.length > LONG_PASTE) {
            event.preventDefault();
            void attach([new File([text], "pasted.txt", { type: "text/plain" })]);
        }
    };
    const over = useFileDrop((files) => void attach(files));
    return (
        <section aria-label="Write a message" className={classes(styles.composer, over && styles.over)}>
            <Refused reasons={refused} onClose={() => setRefused([])} />
            <Attachments
                attachments={draft.attachments}
                reading={reading}
                onRemove={(gone) =>
                    setDraft((draft) => ({ ...draft, attachments: draft.attachments.filter((one) => one !== gone) }))
                }
            />
            <textarea
                ref={field}
                id="message"
                className={styles.field}
                aria-label="Message"
                placeholder="Message"
                rows={1}
                value={draft.text}
                onChange={(event) => setDraft({ ...draft, text: event.target.value })}
                onKeyDown={keys}
                onPaste={paste}
            />
            <div className={styles.row}>
                <IconButton label="Attach files" icon={Paperclip} onClick={() => picker.current?.click()} />
                <input
                    ref={picker}
                    type="file"
                    multiple
                    hidden
                    aria-label="Files to attach"
                    onChange={(event) => {
                        void attach([...(event.target.files ?? [])]);
                        event.target.value = "";
                    }}
                />
                {props.quick}
                <Room tokens={tokens} before={props.before} context={props.context} />
                {busy ? (
                    <Button look="primary" icon={Square} className={styles.send} onClick={onStop}>
                        <span className={styles.word}>Stop</span>
                    </Button>
                ) : (
                    <Button
                        look="primary"
                        icon={ArrowUp}
                        className={styles.send}
                        disabled={empty || reading > 0}
                        onClick={send}
                    >
                        <span className={styles.word}>Send</span>
                    </Button>
                )}
            </div>
            {over && <div className={styles.drop}>Drop files to attach them</div>}
        </section>
    );
});

/** So that a person writes on at once. Where there is no mouse that would bring up a keyboard over what is read. */
function focusField(field: HTMLTextAreaElement | null): void {
    if (matchMedia("(pointer: fine)").matches) field?.focus();
}

/** Time after the last key when a draft is put away; storage takes longer than a frame has. */
const KEEP_MS = 300;

/** Keeps the draft when the person pauses, and when the field or the page goes. */
function useKeptDraft(key: string, draft: Draft): void {
    const latest = useRef(draft);
    latest.current = draft;
    useEffect(() => {
        const timer = setTimeout(() => keepDraft(key, draft), KEEP_MS);
        return () => clearTimeout(timer);
    }, [key, draft]);
    useEffect(() => {
        const keep = () => keepDraft(key, latest.current);
        addEventListener("pagehide", keep);
        return () => {
            removeEventListener("pagehide", keep);
            keep();
        };
    }, [key]);
}

/** The file as it is attached, or why it is not. */
async function readOne(file: File, vision: boolean): Promise<Attachment | string> {
    try {
        const read = await readAttachment(file, { vision });
        if (read.kind === "image") return read;
        // Without a count the file is attached all the same.
        const tokens = await countTokens(read.text).catch(() => undefined);
        return { ...read, ...(tokens !== undefined && { tokens }) };
    } catch (failure) {
        if (failure instanceof AttachError) return failure.message;
        return `${file.name} could not be read. Attach it once more, or another.`;
    }
}

/** Tokens of what is about to be sent. Counted when the person pauses. */
function useTokens({ text, attachments }: Draft): number {
    const [counted, setCounted] = useState(0);
    useEffect(() => {
        if (text.trim() === "") {
            setCounted(0);
            return;
        }
        const abort = new AbortController();
        const timer = setTimeout(() => {
            countTokens(text, abort.signal)
                .then(setCounted)
                // A count is a help; the server banner tells when there is no server.
                .catch(() => undefined);
        }, 350);
        return () => {
            clearTimeout(timer);
            abort.abort();
        };
    }, [text]);
    return attachments.reduce((sum, one) => sum + (one.kind === "file" ? (one.tokens ?? 0) : 0), counted);
}

interface RoomProps {
    tokens: number;
    before: number;
    context: number | undefined;
}

/** How much of the context what is about to be sent takes. */
function Room({ tokens, before, context }: RoomProps) {
    const all = tokens + before;
    if (all === 0) return <span className={styles.room} />;
    const full = context !== undefined && all > context;
    return (
        <span className={classes(styles.room, full && styles.full)} data-tokens={tokens}>
            {tokens > 0 && plural(tokens, "token")}
            {tokens > 0 && context !== undefined && " · "}
            {context !== undefined &&
                (full
                    ? `${formatCount(all)} are more than the context of ${formatCount(context)}`
                    : `${formatFigure(all)} of ${formatFigure(context)}`)}
        </span>
    );
}
