import { Trash2 } from "lucide-react";
import { useMemo, useState, useSyncExternalStore } from "react";
import { ENDED_HERE, type Recorded, recorder } from "../../api/recorder";
import type { PageProps } from "../../pages";
import { navigate } from "../../router";
import { Button } from "../../ui/Button";
import { TextField } from "../../ui/Field";
import { formatMs } from "../../ui/format";
import { Notice } from "../../ui/Notice";
import { PageFrame } from "../../ui/PageFrame";
import styles from "./Inspector.module.css";
import { RequestDetail } from "./RequestDetail";
import { matches } from "./timeline";

/** What this page asked of the server: bodies, answers, frames with their times. The address tells which one is shown. */
export default function InspectorPage({ rest }: PageProps) {
    const records = useSyncExternalStore(recorder.subscribe, recorder.list);
    const [filter, setFilter] = useState("");
    const shown = useMemo(() => records.filter((record) => matches(record, filter)), [records, filter]);
    const selected = records.find((record) => String(record.id) === rest) ?? shown[0];
    const clear = () => {
        recorder.clear();
        navigate("inspector", "", "replace");
    };
    return (
        <PageFrame
            title="Requests"
            lead="What this page asked of the server since it was loaded. It stays in this tab."
            actions={
                <Button icon={Trash2} disabled={records.length === 0} onClick={clear}>
                    Clear
                </Button>
            }
        >
            {records.length === 0 ? (
                <Notice title="No requests yet.">
                    Send a message in the <a href="#/chat">chat</a> or try the <a href="#/completions">playground</a>:
                    each request then stands here.
                </Notice>
            ) : (
                <div className={styles.columns}>
                    <div className={styles.side}>
                        <TextField
                            label="Filter"
                            labelHidden
                            type="search"
                            placeholder="Filter by path, status or text"
                            value={filter}
                            onChange={(event) => setFilter(event.target.value)}
                        />
                        <RequestList records={shown} selected={selected?.id} />
                    </div>
                    {selected && <RequestDetail key={selected.id} record={selected} />}
                </div>
            )}
        </PageFrame>
    );
}

function RequestList({ records, selected }: { records: readonly Recorded[]; selected: number | undefined }) {
    if (records.length === 0) return <p className="muted">No request has all of these words.</p>;
    return (
        <ul className={styles.list} aria-label="Requests">
            {records.map((record) => (
                <li key={record.id}>
                    <a
                        href={`#/inspector/${record.id}`}
                        className={styles.row}
                        aria-current={record.id === selected ? "true" : undefined}
                    >
                        <Status record={record} />
                        <span className={styles.path}>
                            <small>{record.method}</small> {record.path}
                        </span>
                        <span className={styles.when}>
                            {new Date(record.started).toLocaleTimeString()} · {outcome(record)}
                        </span>
                    </a>
                </li>
            ))}
        </ul>
    );
}

function outcome({ duration: took, frames, framesDropped }: Recorded): string {
    const count = frames.length + framesDropped;
    const events = count > 0 ? ` · ${count} events` : "";
    return (took === undefined ? "under way" : formatMs(took)) + events;
}

function Status({ record }: { record: Recorded }) {
    const { status, failure, duration: took } = record;
    const failed = (failure && failure !== ENDED_HERE) || (status ?? 0) >= 400;
    const tone = failed ? "bad" : took === undefined || failure ? "busy" : "good";
    return (
        <span className={styles.status} data-tone={tone}>
            {status ?? (failure ? "failed" : "…")}
        </span>
    );
}
