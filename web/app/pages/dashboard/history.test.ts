import { expect, it } from "vitest";
import { parseMetrics } from "../../api/metrics";
import { extended, type History, nothing, SPAN_MS } from "./history";

function told(decodeRows: number, firstTokens = 0): ReturnType<typeof parseMetrics> {
    return parseMetrics(
        [
            `bantam_decode_rows_computed_total ${decodeRows}`,
            "bantam_prefill_rows_computed_total 0",
            "bantam_state_budget_bytes 1000",
            "bantam_state_bytes 600",
            "bantam_state_usage_ratio 0.25",
            `vllm:time_to_first_token_seconds_count ${firstTokens}`,
            `vllm:time_to_first_token_seconds_sum ${firstTokens * 0.5}`,
        ].join("\n"),
    );
}

it("makes speeds of counters", () => {
    let history = extended(nothing, told(100), 10_000);
    expect(history.decode).toEqual([]);
    history = extended(history, told(150, 2), 12_000);
    expect(history.decode).toEqual([{ at: 12_000, value: 25 }]);
    expect(history.firstToken).toEqual([{ at: 12_000, value: 0.5 }]);
    expect([history.held.at(-1)?.value, history.cached.at(-1)?.value]).toEqual([0.25, 0.35]);
});

it("has no first token where no request began", () => {
    const history = extended(extended(nothing, told(1, 3), 0), told(2, 3), 1000);
    expect(history.firstToken).toEqual([]);
});

it("begins anew with the server", () => {
    const history = extended(extended(nothing, told(100), 0), told(5), 1000);
    expect(history.decode).toEqual([{ at: 1000, value: 0 }]);
});

it("tells nothing of the time in which nobody looked", () => {
    const history = extended(extended(nothing, told(100), 0), told(1000), 60_000);
    expect(history.decode).toEqual([]);
});

it("forgets what is long past", () => {
    let history: History = nothing;
    for (let at = 0; at <= 2 * SPAN_MS; at += 4000) history = extended(history, told(at), at);
    expect(history.decode.length).toBeLessThanOrEqual(SPAN_MS / 4000 + 1);
    expect(history.decode[0]?.at).toBeGreaterThanOrEqual(SPAN_MS);
});
