import { useLiveQuery } from "dexie-react-hooks";
import { memo, useRef, useState } from "react";
import { asApiError } from "../api/errors";
import { db } from "../db/database";
import { textOf } from "../db/text";
import type { AnswerInfo, Message, Part, ResultPart } from "../db/types";
import { Markdown } from "../markdown/Markdown";
import type { Settings } from "../settings/settings";
import { runsHere } from "../tools/run";
import { Button } from "../ui/Button";
import { plural } from "../ui/format";
import { useStore } from "../ui/store";
import { toast } from "../ui/toasts";
import { AnswerFooter } from "./AnswerFooter";
import { answer as answerMessage, edit, setResult } from "./actions";
import { EditForm } from "./EditForm";
import { Ending } from "./Ending";
import styles from "./Message.module.css";
import { type Live, type Run, runs } from "./runs";
import { SchemaCheck } from "./SchemaCheck";
import { Thinking } from "./Thinking";
import { ToolCard } from "./ToolCard";
import { Waiting } from "./Waiting";

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
    const run = useLastRun(message, useStore(runs).get(message.id));
    if (run) return <Running {...props} run={run} />;
    if (message.answer?.state === "streaming") return <Elsewhere {...props} />;
    return <Answer {...props} parts={message.parts} info={message.answer} />;
});

/** The run of this answer; one that has ended until its end comes back from the database, which takes longer. */
function useLastRun({ revision, answer }: Message, running: Run | undefined): Run | undefined {
    const last = useRef<{ run: Run; revision: number }>(undefined);
    if (running) last.current = { run: running, revision };
    if (running || answer?.state !== "streaming" || last.current?.revision !== revision) return running;
    return last.current.run;
}

function Running({ run, ...props }: AnswerViewProps & { run: Run }) {
    const live = useStore(run.live);
    return <Answer {...props} parts={live.parts} info={live.answer} run={run} live={live} />;
}

/** Received by another tab: what it has saved is shown. */
function Elsewhere(props: AnswerViewProps) {
    const partial = useLiveQuery(() => db.partials.get(props.message.id), [props.message.id]);
    // It is not there yet when an answer is gone on with, and gone a moment before the answer is told to have ended.
    const last = useRef<readonly Part[]>(props.message.parts);
    if (partial) last.current = partial.parts;
    return <Answer {...props} parts={last.current} info={props.message.answer} elsewhere />;
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
            {!streaming && <Results {...{ message, parts, results, answered }} />}
            {info?.schema !== undefined && info.state === "done" && !parts.some((part) => part.kind === "call") && (
                <SchemaCheck schema={info.schema} text={textOf(parts)} />
            )}
            {!streaming && <Ending message={message} info={info} />}
            {!streaming && (
                <AnswerFooter message={message} info={info} siblings={siblings} onEdit={() => setEditing(true)} />
            )}
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

interface ResultsProps {
    message: Message;
    parts: readonly Part[];
    results: Message | undefined;
    answered: boolean;
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
