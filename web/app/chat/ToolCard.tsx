import { CircleCheck, CircleX, Clock3, LoaderCircle, Wrench } from "lucide-react";
import { memo, useState } from "react";
import type { CallPart, ResultPart } from "../db/types";
import { Button } from "../ui/Button";
import { CopyButton } from "../ui/CopyButton";
import { AreaField, Switch } from "../ui/Field";
import styles from "./ToolCard.module.css";

interface ToolCardProps {
    call: CallPart;
    result: ResultPart | undefined;
    /** Whether its arguments still arrive. */
    growing: boolean;
    /** Whether the page runs it by itself. */
    here: boolean;
    /** Takes a result; undefined where none can be given any more. */
    onResult: ((content: string, failed: boolean) => void) | undefined;
}

export const ToolCard = memo(function ToolCard({ call, result, growing, here, onResult }: ToolCardProps) {
    const [editing, setEditing] = useState(false);
    return (
        <section className={styles.card} aria-label={`Call of ${call.name}`} data-call={call.name}>
            <header className={styles.header}>
                <Wrench size={15} aria-hidden />
                <code className={styles.name}>{call.name}</code>
                <State growing={growing} result={result} here={here} />
            </header>
            <div className={styles.block}>
                <span className={styles.label}>Arguments</span>
                <pre className={styles.json}>{growing ? call.arguments : pretty(call.arguments)}</pre>
                <div className={styles.copy}>
                    <CopyButton label="Copy arguments" text={() => call.arguments} />
                </div>
            </div>
            {result && !editing && (
                <div className={styles.block}>
                    <span className={styles.label}>{result.failed ? "Failure" : "Result"}</span>
                    <pre className={styles.json}>{pretty(result.content)}</pre>
                    {onResult && (
                        <div className={styles.copy}>
                            <Button small look="quiet" onClick={() => setEditing(true)}>
                                Change
                            </Button>
                        </div>
                    )}
                </div>
            )}
            {onResult && !growing && (editing || (!result && !here)) && (
                <ResultForm
                    call={call}
                    result={result}
                    onResult={(content, failed) => {
                        onResult(content, failed);
                        setEditing(false);
                    }}
                />
            )}
        </section>
    );
});

function State({ growing, result, here }: { growing: boolean; result: ResultPart | undefined; here: boolean }) {
    if (growing) return <Told icon={LoaderCircle} text="Being written" spins />;
    if (result?.failed) return <Told icon={CircleX} text="Failed" />;
    if (result) return <Told icon={CircleCheck} text={here ? "Run here" : "Result given"} />;
    return here ? <Told icon={LoaderCircle} text="Running" spins /> : <Told icon={Clock3} text="Waits for a result" />;
}

function Told({ icon: Icon, text, spins }: { icon: typeof Wrench; text: string; spins?: boolean }) {
    return (
        <span className={styles.state}>
            <Icon size={14} aria-hidden className={spins ? styles.spins : undefined} />
            {text}
        </span>
    );
}

interface ResultFormProps {
    call: CallPart;
    result: ResultPart | undefined;
    onResult: (content: string, failed: boolean) => void;
}

function ResultForm({ call, result, onResult }: ResultFormProps) {
    const [content, setContent] = useState(result?.content ?? "");
    const [failed, setFailed] = useState(result?.failed ?? false);
    return (
        <div className={styles.form}>
            <AreaField
                label={`Result of ${call.name}`}
                placeholder="Run it, and paste what it gave back"
                value={content}
                onChange={(event) => setContent(event.target.value)}
                rows={3}
            />
            <div className={styles.row}>
                <Switch label="It failed" checked={failed} onChange={(event) => setFailed(event.target.checked)} />
                <Button small look="primary" disabled={content === ""} onClick={() => onResult(content, failed)}>
                    Use this result
                </Button>
            </div>
        </div>
    );
}

/** JSON with room to read; what is none stays as it is. */
function pretty(json: string): string {
    try {
        const value: unknown = JSON.parse(json);
        return typeof value === "object" ? JSON.stringify(value, null, 2) : json;
    } catch {
        return json;
    }
}
