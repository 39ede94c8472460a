import { useMemo, useState } from "react";
import { apiKey } from "../../api/key";
import { ENDED_HERE, type Recorded } from "../../api/recorder";
import { CopyButton } from "../../ui/CopyButton";
import { formatCount, formatMemory, formatMs } from "../../ui/format";
import { Notice } from "../../ui/Notice";
import { Tabs } from "../../ui/Tabs";
import { curl } from "./curl";
import { Frames } from "./Frames";
import styles from "./Inspector.module.css";
import { arrivals, pretty } from "./timeline";

/** One request with everything that is known of it. */
export function RequestDetail({ record }: { record: Recorded }) {
    const [tab, setTab] = useState("answer");
    const streamed = record.frames.length > 0;
    const command = curl(record, location.origin, apiKey() !== "");
    return (
        <article className={styles.detail} aria-label={`${record.method} ${record.path}`}>
            <header className={styles.head}>
                <h2>
                    {record.method} <code>{record.path}</code>
                </h2>
                <p className="muted">
                    {new Date(record.started).toLocaleString()}
                    {record.responseHeaders["x-request-id"] && (
                        <>
                            {" · "}
                            <code>{record.responseHeaders["x-request-id"]}</code> in the server's log
                        </>
                    )}
                </p>
            </header>
            {record.failure && (
                <Notice tone={record.failure === ENDED_HERE ? "info" : "bad"} title={capital(record.failure)} />
            )}
            <Timeline record={record} />
            <Tabs
                label="Parts of the request"
                selected={tab}
                onSelect={setTab}
                tabs={[
                    {
                        id: "answer",
                        title: streamed ? `Events (${formatCount(record.frames.length)})` : "Answer",
                        content: streamed ? <Frames record={record} /> : <Text name="answer" text={record.response} />,
                    },
                    { id: "body", title: "Body", content: <Text name="body" text={record.body} /> },
                    { id: "headers", title: "Headers", content: <Headers record={record} /> },
                    { id: "curl", title: "curl", content: <Curl command={command} /> },
                ]}
            />
        </article>
    );
}

function capital(text: string): string {
    return text.charAt(0).toUpperCase() + text.slice(1);
}

function Curl({ command }: { command: string }) {
    return (
        <>
            <Code name="command" text={command} />
            {command.includes("$BANTAM_API_KEY") && (
                <p className="muted">
                    The key is not in it: set it first with <code>export BANTAM_API_KEY=…</code>
                </p>
            )}
        </>
    );
}

function Text({ name, text }: { name: string; text: string | undefined }) {
    const shown = useMemo(() => (text === undefined ? undefined : pretty(text)), [text]);
    if (shown === undefined || shown === "") return <p className="muted">There is none.</p>;
    return <Code name={name} text={shown} />;
}

function Code({ name, text }: { name: string; text: string }) {
    return (
        <div className={styles.code}>
            <div className={styles.copy}>
                <CopyButton label={`Copy the ${name}`} text={() => text} />
            </div>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys. */}
            <pre tabIndex={0} data-part={name}>
                {text}
            </pre>
        </div>
    );
}

function Headers({ record }: { record: Recorded }) {
    return (
        <div className={styles.headers}>
            <HeaderTable title="Sent" headers={record.headers} />
            <HeaderTable title="Received" headers={record.responseHeaders} />
        </div>
    );
}

function HeaderTable({ title, headers }: { title: string; headers: Record<string, string> }) {
    const rows = Object.entries(headers);
    return (
        <section>
            <h3>{title}</h3>
            {rows.length === 0 && <p className="muted">None.</p>}
            <dl>
                {rows.map(([name, value]) => (
                    <div key={name}>
                        <dt>{name}</dt>
                        <dd>{value}</dd>
                    </div>
                ))}
            </dl>
        </section>
    );
}

const BINS = 80;

/** From the request to the end of its answer: when it began, and when its events came. */
function Timeline({ record }: { record: Recorded }) {
    const { firstByte, duration: took, frames } = record;
    const end = Math.max(1, took ?? 0, frames.at(-1)?.at ?? 0);
    const counts = arrivals(record, BINS);
    const most = Math.max(1, ...counts);
    const first = frames[0]?.at ?? firstByte;
    const size = (record.response?.length ?? 0) + frames.reduce((sum, frame) => sum + frame.data.length, 0);
    const waited = first === undefined ? 1 : Math.min(1, first / end);
    return (
        <div className={styles.timeline}>
            <svg viewBox={`0 0 ${BINS} 20`} preserveAspectRatio="none" role="img" aria-label="When the answer arrived">
                <rect className={styles.waited} x={0} y={0} width={BINS * waited} height={20} />
                <rect className={styles.answered} x={BINS * waited} y={0} width={BINS * (1 - waited)} height={20} />
                {counts.map((n, bin) => {
                    const height = (18 * n) / most;
                    return (
                        n > 0 && (
                            <rect
                                // biome-ignore lint/suspicious/noArrayIndexKey: bins are their places.
                                key={bin}
                                className={styles.arrived}
                                x={bin + 0.1}
                                y={20 - height}
                                width={0.8}
                                height={height}
                            />
                        )
                    );
                })}
            </svg>
            <dl className={styles.times}>
                <div>
                    <dt>First {frames.length > 0 ? "event" : "byte"}</dt>
                    <dd>{first === undefined ? "–" : formatMs(first)}</dd>
                </div>
                <div>
                    <dt>End</dt>
                    <dd>{took === undefined ? "under way" : formatMs(took)}</dd>
                </div>
                <div>
                    <dt>Sent</dt>
                    <dd>{formatMemory(record.body?.length ?? 0)}</dd>
                </div>
                <div>
                    <dt>Received</dt>
                    <dd>{formatMemory(size)}</dd>
                </div>
            </dl>
        </div>
    );
}
