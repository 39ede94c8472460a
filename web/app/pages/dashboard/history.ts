/** Figures over the last minutes, made of counters that are read again and again. They outlive a change of page. */

import { type Histogram, histogram, type Metrics, metric, since } from "../../api/metrics";
import type { Point } from "../../ui/chart/scale";

/** How far back figures are kept. */
export const SPAN_MS = 5 * 60_000;
/** Counters read longer ago than this tell nothing of the present. */
const STALE_MS = 5000;

/** A look at the server. */
interface Look {
    at: number;
    decodeRows: number;
    promptRows: number;
    firstToken: Histogram;
}

export interface History {
    last: Look | undefined;
    /** Tokens a second. */
    decode: readonly Point[];
    prefill: readonly Point[];
    /** Mean seconds of the requests that had their first token since the look before. */
    firstToken: readonly Point[];
    /** Parts of the memory for state, 0 to 1. */
    held: readonly Point[];
    cached: readonly Point[];
    running: readonly Point[];
    waiting: readonly Point[];
}

export const nothing: History = {
    last: undefined,
    decode: [],
    prefill: [],
    firstToken: [],
    held: [],
    cached: [],
    running: [],
    waiting: [],
};

const counters = { decodeRows: "bantam_decode_rows_computed_total", promptRows: "bantam_prefill_rows_computed_total" };

/** The history with what these figures add to it. */
export function extended(history: History, metrics: Metrics, at: number): History {
    const look: Look = {
        at,
        decodeRows: metric(metrics, counters.decodeRows) ?? 0,
        promptRows: metric(metrics, counters.promptRows) ?? 0,
        firstToken: histogram(metrics, "vllm:time_to_first_token_seconds"),
    };
    const budget = metric(metrics, "bantam_state_budget_bytes") ?? 0;
    const used = budget > 0 ? (metric(metrics, "bantam_state_bytes") ?? 0) / budget : 0;
    const held = metric(metrics, "bantam_state_usage_ratio") ?? 0;
    const level = (points: readonly Point[], value: number) => kept(points, at, value);
    const levels = {
        held: level(history.held, held),
        cached: level(history.cached, Math.max(0, used - held)),
        running: level(history.running, metric(metrics, "bantam_requests_running") ?? 0),
        waiting: level(history.waiting, metric(metrics, "bantam_requests_waiting") ?? 0),
    };
    return { ...history, ...levels, ...rates(history, look), last: look };
}

function rates(history: History, look: Look): Partial<History> {
    const before = history.last;
    if (!before || look.at <= before.at || look.at - before.at > STALE_MS) return {};
    const seconds = (look.at - before.at) / 1000;
    // Counters begin anew with the server.
    const rate = (now: number, then: number) => Math.max(0, now - then) / seconds;
    const first = since(before.firstToken, look.firstToken);
    return {
        decode: kept(history.decode, look.at, rate(look.decodeRows, before.decodeRows)),
        prefill: kept(history.prefill, look.at, rate(look.promptRows, before.promptRows)),
        firstToken: first.count > 0 ? kept(history.firstToken, look.at, first.sum / first.count) : history.firstToken,
    };
}

function kept(points: readonly Point[], at: number, value: number): Point[] {
    return [...points.filter((point) => at - point.at <= SPAN_MS), { at, value }];
}
