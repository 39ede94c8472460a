import { describe, expect, it } from "vitest";
import { histogram, metric, parseMetrics, quantile, since } from "./metrics";

const text = `# HELP bantam_slots Slots by what they do
# TYPE bantam_slots gauge
bantam_slots{state="idle"} 3
bantam_slots{state="decode"} 1
bantam_steps_total 17
bantam_build_info{version="0.1.0",backend="c\\"p\\\\u\\n}"} 1
vllm:t_bucket{le="0.5",model_name="m"} 2
vllm:t_bucket{le="1.0",model_name="m"} 6
vllm:t_bucket{le="+Inf",model_name="m"} 8
vllm:t_sum{model_name="m"} 7.5
vllm:t_count{model_name="m"} 8
broken{ 1
nothing NaN
# EOF
`;

describe("parseMetrics", () => {
    const metrics = parseMetrics(text);

    it("finds samples by name and labels", () => {
        expect(metric(metrics, "bantam_slots", { state: "decode" })).toBe(1);
        expect(metric(metrics, "bantam_slots", { state: "blocked" })).toBeUndefined();
        expect(metric(metrics, "bantam_steps_total")).toBe(17);
    });

    it("reads what is escaped in labels, braces included", () => {
        expect(metrics.get("bantam_build_info")?.[0]?.labels).toEqual({ version: "0.1.0", backend: 'c"p\\u\n}' });
    });

    it("passes over what is no sample", () => {
        expect([...metrics.keys()].some((name) => name.startsWith("broken") || name === "nothing")).toBe(false);
    });

    it("joins the parts of a histogram", () => {
        const { buckets, sum, count } = histogram(metrics, "vllm:t");
        expect(buckets.map(({ most }) => most)).toEqual([0.5, 1, Number.POSITIVE_INFINITY]);
        expect([sum, count]).toEqual([7.5, 8]);
    });
});

describe("histograms", () => {
    const now = histogram(parseMetrics(text), "vllm:t");

    it("have quantiles within their buckets", () => {
        expect(quantile(now, 0.5)).toBe(0.75);
        expect(quantile(now, 0.125)).toBe(0.25);
        expect(quantile(now, 0.99)).toBe(1);
        expect(quantile({ buckets: [], sum: 0, count: 0 }, 0.5)).toBeUndefined();
    });

    it("tell what came between two moments", () => {
        const before = { buckets: [{ most: 0.5, count: 2 }], sum: 0.5, count: 2 };
        const between = since(before, now);
        expect([between.count, between.sum]).toEqual([6, 7]);
        expect(between.buckets.map(({ count }) => count)).toEqual([0, 6, 8]);
        expect(since({ ...now, count: 100 }, now)).toEqual(now);
    });
});
