import { useCallback, useState } from "react";
import { requestJson, requestText } from "../../api/client";
import { type ApiError, asApiError } from "../../api/errors";
import { histogram, type Metrics, metric, parseMetrics, quantile } from "../../api/metrics";
import { usePoll } from "../../api/poll";
import type { Actor, Memory, Queued, Slot } from "../../api/runtime";
import { useServer } from "../../api/server";
import { Card } from "../../ui/Card";
import { LineChart } from "../../ui/chart/LineChart";
import { formatCount, formatFigure, formatMs, formatShare } from "../../ui/format";
import { ErrorNotice } from "../../ui/Notice";
import { PageFrame } from "../../ui/PageFrame";
import { createStore, useStore } from "../../ui/store";
import { Actors } from "./Actors";
import styles from "./Dashboard.module.css";
import { extended, type History, nothing, SPAN_MS } from "./history";
import { MemoryCard } from "./Memory";
import { Slots } from "./Slots";

const OFTEN_MS = 1000;
const SELDOM_MS = 4000;

interface Live {
    at: number;
    metrics: Metrics;
    slots: Slot[];
    queue: Queued[];
}

const history = createStore<History>(nothing);

/** What the server does at this moment, and has done in the last minutes. */
export default function DashboardPage() {
    const { props } = useServer();
    const [live, setLive] = useState<Live>();
    const [memory, setMemory] = useState<Memory>();
    const [actors, setActors] = useState<Actor>();
    const [error, setError] = useState<ApiError>();
    const past = useStore(history);

    usePoll(
        useCallback(async (signal) => {
            const options = { signal, record: false };
            try {
                const [metrics, slots, queue] = await Promise.all([
                    requestText("/metrics", options).then(parseMetrics),
                    requestJson<Slot[]>("/slots", options),
                    requestJson<Queued[]>("/queue", options),
                ]);
                const at = Date.now();
                setLive({ at, metrics, slots, queue });
                history.update((before) => extended(before, metrics, at));
                setError(undefined);
            } catch (failure) {
                if (!signal.aborted) setError(asApiError(failure));
            }
        }, []),
        OFTEN_MS,
    );
    usePoll(
        useCallback(async (signal) => {
            const options = { signal, record: false };
            // Who does the work is told even where nothing else is.
            await requestJson<Actor>("/actors", options).then(setActors, () => undefined);
            await requestJson<Memory>("/memory", options).then(setMemory, () => undefined);
        }, []),
        SELDOM_MS,
    );

    const title = props?.model.title ?? props?.model.name;
    const lead = props && `${title} · ${props.model.architecture} · ${props.backend}, ${props.threads} threads`;
    return (
        <PageFrame title="Runtime" lead={lead ?? "What the server does at this moment"}>
            {error && <ErrorNotice error={error} />}
            {live && <Figures metrics={live.metrics} />}
            {live && <Slots slots={live.slots} queue={live.queue} />}
            {live && <Charts history={past} now={live.at} />}
            <div className={styles.halves}>
                {memory && <MemoryCard memory={memory} />}
                {actors && <Actors top={actors} />}
            </div>
        </PageFrame>
    );
}

function Figures({ metrics }: { metrics: Metrics }) {
    const value = (name: string) => metric(metrics, name);
    const first = histogram(metrics, "vllm:time_to_first_token_seconds");
    const median = quantile(first, 0.5);
    const tail = quantile(first, 0.95);
    const wanted = value("bantam_prefix_tokens_wanted_total") ?? 0;
    const found = value("bantam_prefix_tokens_found_total") ?? 0;
    const speed = (name: string) => {
        const rate = value(name);
        return rate === undefined ? "–" : formatFigure(rate);
    };
    return (
        <dl className={styles.figures}>
            <Figure
                name="Requests"
                value={`${value("bantam_requests_running") ?? 0} running`}
                more={`${value("bantam_requests_waiting") ?? 0} waiting`}
            />
            <Figure
                name="Generation"
                value={speed("bantam_decode_tokens_per_second")}
                unit="tok/s"
                more="while it computes"
            />
            <Figure
                name="Prompts"
                value={speed("bantam_prefill_tokens_per_second")}
                unit="tok/s"
                more="while it computes"
            />
            <Figure
                name="First token"
                value={median === undefined ? "–" : formatMs(median * 1000)}
                more={tail === undefined ? "no request yet" : `95 % within ${formatMs(tail * 1000)}`}
            />
            <Figure
                name="Found in the cache"
                value={wanted > 0 ? formatShare(found / wanted) : "–"}
                more={`${formatCount(found)} of ${formatCount(wanted)} tokens`}
            />
            <Figure
                name="State in use"
                value={formatShare(value("bantam_state_usage_ratio") ?? 0)}
                more={`${formatCount(value("bantam_steps_total") ?? 0)} steps so far`}
            />
        </dl>
    );
}

function Figure({ name, value, unit, more }: { name: string; value: string; unit?: string; more: string }) {
    return (
        <div className={styles.figure}>
            <dt>{name}</dt>
            <dd className={styles.value}>
                {value} {unit && <small>{unit}</small>}
            </dd>
            <dd className={styles.more}>{more}</dd>
        </div>
    );
}

/** No more of the past than is known of it. */
function span(history: History, now: number): number {
    const first = history.running[0]?.at ?? now;
    return [60_000, 120_000].find((ms) => now - first <= ms) ?? SPAN_MS;
}

function Charts({ history, now }: { history: History; now: number }) {
    const common = { now, spanMs: span(history, now) };
    return (
        <Card title="The last minutes" aside="Measured while this page is open">
            <div className={styles.charts}>
                <LineChart
                    {...common}
                    title="Generation, tok/s"
                    series={[{ name: "all requests", points: history.decode, colour: 1 }]}
                    format={formatFigure}
                    least={1}
                    empty="Nothing measured yet"
                />
                <LineChart
                    {...common}
                    title="Prompts, tok/s"
                    series={[{ name: "all requests", points: history.prefill, colour: 1 }]}
                    format={formatFigure}
                    least={1}
                    empty="Nothing measured yet"
                />
                <LineChart
                    {...common}
                    title="Time to the first token"
                    series={[{ name: "mean", points: history.firstToken, colour: 1 }]}
                    format={(seconds) => formatMs(seconds * 1000)}
                    least={0.1}
                    empty="No request began while this page was open"
                />
                <LineChart
                    {...common}
                    title="Memory for state"
                    series={[
                        { name: "held", points: history.held, colour: 1 },
                        { name: "cached", points: history.cached, colour: 2 },
                    ]}
                    format={formatShare}
                    least={0.05}
                    empty="Nothing measured yet"
                />
            </div>
        </Card>
    );
}
