import { useLiveQuery } from "dexie-react-hooks";
import { ChevronLeft, ChevronRight, Pencil, RotateCcw, StepForward, Trash2 } from "lucide-react";
import { memo, useMemo, useState } from "react";
import { asApiError } from "../api/errors";
import { deleteBranch } from "../db/conversations";
import { db } from "../db/database";
import { textOf } from "../db/text";
import type { AnswerInfo, Message, Part, ResultPart } from "../db/types";
import { Markdown } from "../markdown/Markdown";
import { canContinue } from "../protocols/continuation";
import type { Settings } from "../settings/settings";
import { runsHere } from "../tools/run";
import { Button, IconButton } from "../ui/Button";
import { CopyButton } from "../ui/CopyButton";
import { formatCount, formatMs, formatNumber, plural } from "../ui/format";
import { Notice } from "../ui/Notice";
import { useStore } from "../ui/store";
import { toast } from "../ui/toasts";
import { answer as answerMessage, edit, goOn, retry, setResult, show } from "./actions";
import { EditForm } from "./EditForm";
import styles from "./Message.module.css";
import { type Live, type Run, runs } from "./runs";
import { SchemaCheck } from "./SchemaCheck";
import { Thinking } from "./Thinking";
import { ToolCard } from "./ToolCard";

export interface AnswerViewProps {
    message: Message;
    siblings: readonly Message[];
    /** The message with its tools' results, if there is one. */
    results: Message | undefined;
    /** Whether anything follows: results then stay as they were told. */
    answered: boolean;
    settings: Settings;
}

/** An answer, under way or ended. */
export const AnswerView = memo(function AnswerView(props: AnswerViewProps) {
    const { message } = props;
    const run = useStore(runs).get(message.id);
    if (run) return <Running {...props} run={run} />;
    if (message.answer?.state === "streaming") return <Elsewhere {...props} />;
    return <Answer {...props} parts={message.parts} info={message.answer} />;
});

function Running({ run, ...props }: AnswerViewProps & { run: Run }) {
    const live = useStore(run.live);
    return <Answer {...props} parts={live.parts} info={live.answer} run={run} live={live} />;
}

/** Received by another tab: what it has saved is shown. */
function Elsewhere(props: AnswerViewProps) {
    const partial = useLiveQuery(() => db.partials.get(props.message.id), [props.message.id]);
    return <Answer {...props} parts={partial?.parts ?? []} info={props.message.answer} elsewhere />;
}

interface AnswerProps extends AnswerViewProps {
    parts: readonly Part[];
    info: AnswerInfo | undefined;
    run?: Run;
    live?: Live;
    elsewhere?: boolean;
}

function Answer({ message, siblings, results, answered, settings, parts, info, run, live, elsewhere }: AnswerProps) {
    const [editing, setEditing] = useState(false);
    const streaming = info?.state === "streaming";
    if (editing) {
        const save = (text: string) => {
            const others = message.parts.filter((part) => part.kind !== "text");
            void edit(message, [...others, { kind: "text", text }]);
            setEditing(false);
        };
        return (
            <EditForm
                label="Edit the answer"
                text={textOf(message.parts)}
                action="Save as a branch"
                onSave={save}
                onCancel={() => setEditing(false)}
            />
        );
    }
    return (
        <article className={styles.answer} aria-label="Answer" aria-busy={streaming} data-state={info?.state}>
            <h2 className="visually-hidden">Answer</h2>
            {parts.map((part, index) => (
                <PartView
                    // biome-ignore lint/suspicious/noArrayIndexKey: parts keep their places.
                    key={index}
                    part={part}
                    last={index === parts.length - 1}
                    streaming={streaming}
                    {...{ info, run, live, results, answered, settings }}
                />
            ))}
            {streaming && <Waiting live={live} empty={parts.length === 0} elsewhere={elsewhere ?? false} />}
            {!streaming && <Results {...{ message, parts, results, answered, settings }} />}
            {info?.schema !== undefined && info.state === "done" && !parts.some((part) => part.kind === "call") && (
                <SchemaCheck schema={info.schema} text={textOf(parts)} />
            )}
            {!streaming && <Ending message={message} info={info} />}
            {!streaming && <Footer message={message} info={info} siblings={siblings} onEdit={() => setEditing(true)} />}
        </article>
    );
}

interface PartViewProps {
    part: Part;
    last: boolean;
    streaming: boolean;
    info: AnswerInfo | undefined;
    run: Run | undefined;
    live: Live | undefined;
    results: Message | undefined;
    answered: boolean;
    settings: Settings;
}

function PartView({ part, last, streaming, info, run, live, results, answered, settings }: PartViewProps) {
    switch (part.kind) {
        case "text":
            return <Markdown text={part.text} growing={streaming && last} />;
        case "thinking": {
            const active = streaming && last;
            const stop = () => void run?.answerNow().catch(told);
            return (
                <Thinking
                    part={part}
                    active={active}
                    tokens={info?.usage?.thinking || live?.thinkingPieces}
                    onAnswerNow={live?.canStopThinking ? stop : undefined}
                />
            );
        }
        case "call": {
            const here = runsHere(part.name, settings);
            const open = results && !answered;
            return (
                <ToolCard
                    call={part}
                    growing={streaming && last}
                    here={here}
                    result={resultOf(results, part.id)}
                    onResult={open ? (content, failed) => void setResult(results, part, content, failed) : undefined}
                />
            );
        }
        default:
            return null;
    }
}

function told(failure: unknown): void {
    const error = asApiError(failure);
    toast(`${error.message} ${error.advice}`, { tone: "bad" });
}

function resultOf(results: Message | undefined, callId: string): ResultPart | undefined {
    return results?.parts.find((part): part is ResultPart => part.kind === "result" && part.callId === callId);
}

/** What is shown before the first word. */
function Waiting({ live, empty, elsewhere }: { live: Live | undefined; empty: boolean; elsewhere: boolean }) {
    if (elsewhere) return <p className={styles.waiting}>Being received in another tab…</p>;
    const progress = live?.progress;
    if (progress && progress.total > 0) {
        return (
            <div className={styles.prefill}>
                <progress max={progress.total} value={progress.done} aria-label="Reading the prompt" />
                <span>
                    Reading the prompt: {formatCount(progress.done)} of {plural(progress.total, "token")}
                </span>
            </div>
        );
    }
    if (!empty) return null;
    return (
        <p className={styles.waiting}>
            <span className={styles.dots} aria-hidden>
                <i />
                <i />
                <i />
            </span>
            <span className="visually-hidden">Waiting for the answer</span>
        </p>
    );
}

interface ResultsProps {
    message: Message;
    parts: readonly Part[];
    results: Message | undefined;
    answered: boolean;
    settings: Settings;
}

/** Sends the tools' results once all are there. */
function Results({ message, parts, results, answered }: ResultsProps) {
    const calls = parts.filter((part) => part.kind === "call");
    if (calls.length === 0 || !results || answered) return null;
    const missing = calls.filter((call) => !resultOf(results, call.id)).length;
    return (
        <div className={styles.results}>
            <Button
                look="primary"
                disabled={missing > 0}
                onClick={() => void answerMessage(message.conversation, results.id)}
            >
                Send {calls.length === 1 ? "the result" : "all results"}
            </Button>
            {missing > 0 && <span className="muted">{plural(missing, "result")} missing</span>}
        </div>
    );
}

/** How an answer ended, where that is not by itself; and what can be done about it. */
function Ending({ message, info }: { message: Message; info: AnswerInfo | undefined }) {
    if (!info) return null;
    const buttons = (
        <>
            <Button small icon={RotateCcw} onClick={() => void retry(message)}>
                Retry
            </Button>
            {canContinue(message) && (
                <Button small icon={StepForward} onClick={() => void goOn(message)}>
                    Continue
                </Button>
            )}
        </>
    );
    switch (info.state) {
        case "failed":
        case "interrupted":
            return (
                <div className={styles.ending}>
                    <Notice
                        tone={info.state === "failed" ? "bad" : "warn"}
                        title={info.error?.message ?? "The answer did not end."}
                        actions={buttons}
                    >
                        {info.error?.advice}
                    </Notice>
                </div>
            );
        case "stopped":
            return (
                <div className={styles.ended}>
                    <span className="muted">Stopped.</span> {buttons}
                </div>
            );
        default:
            if (info.finish !== "length") return null;
            return (
                <div className={styles.ended}>
                    <span className="muted">The longest answer was reached.</span> {buttons}
                </div>
            );
    }
}

interface FooterProps {
    message: Message;
    info: AnswerInfo | undefined;
    siblings: readonly Message[];
    onEdit: () => void;
}

function Footer({ message, info, siblings, onEdit }: FooterProps) {
    const figures = useMemo(() => figuresOf(info), [info]);
    return (
        <footer className={styles.footer}>
            <Siblings message={message} siblings={siblings} />
            {figures.length > 0 && (
                <span className={styles.figures} title={info?.model}>
                    {figures.map((figure) => (
                        <span key={figure.name} title={figure.name}>
                            {figure.value}
                        </span>
                    ))}
                </span>
            )}
            <div className={styles.actions}>
                <CopyButton label="Copy the answer" text={() => textOf(message.parts)} />
                <IconButton label="Retry" icon={RotateCcw} small onClick={() => void retry(message)} />
                <IconButton label="Edit the answer" icon={Pencil} small onClick={onEdit} />
                <IconButton label="Delete from here" icon={Trash2} small onClick={() => void remove(message)} />
            </div>
        </footer>
    );
}

export async function remove(message: Message): Promise<void> {
    const undo = await deleteBranch(message);
    toast("Deleted, with all that followed.", { action: { label: "Undo", run: () => void undo() } });
}

export function Siblings({ message, siblings }: { message: Message; siblings: readonly Message[] }) {
    if (siblings.length < 2) return null;
    const at = siblings.findIndex((one) => one.id === message.id);
    const go = (to: number) => {
        const sibling = siblings[to];
        if (sibling) void show(sibling);
    };
    return (
        <fieldset className={styles.siblings}>
            <legend className="visually-hidden">Branches</legend>
            <IconButton
                label="Previous branch"
                icon={ChevronLeft}
                small
                disabled={at <= 0}
                onClick={() => go(at - 1)}
            />
            <span className={styles.place}>
                {at + 1}/{siblings.length}
            </span>
            <IconButton
                label="Next branch"
                icon={ChevronRight}
                small
                disabled={at >= siblings.length - 1}
                onClick={() => go(at + 1)}
            />
        </fieldset>
    );
}

/** Below this a speed says more about the network than about the model. */
const SHORTEST_MS = 20;

interface Figure {
    name: string;
    value: string;
}

function figuresOf(info: AnswerInfo | undefined): Figure[] {
    const { usage, times } = info ?? {};
    const figures: Figure[] = [];
    if (usage && times && times.decode >= SHORTEST_MS && usage.output > 1) {
        // The first token is there when the time begins.
        const speed = (usage.output - 1) / (times.decode / 1000);
        figures.push({ name: "Speed of the answer", value: `${formatNumber(speed)} tok/s` });
    }
    if (times) figures.push({ name: "Time to the first token", value: `${formatMs(times.first)} to first` });
    if (usage) {
        figures.push({ name: "Tokens of the answer", value: plural(usage.output, "token") });
        if (usage.prompt > 0) {
            const cached = Math.round((usage.cached / usage.prompt) * 100);
            const name = `${plural(usage.cached, "token")} of the prompt's ${formatCount(usage.prompt)} were cached`;
            figures.push({ name, value: `${cached} % cached` });
        }
    }
    return figures;
}
