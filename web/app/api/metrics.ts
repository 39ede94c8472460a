/** Prometheus' text format, as `GET /metrics` answers in. */

export interface Sample {
    labels: Record<string, string>;
    value: number;
}

/** The samples of each name. */
export type Metrics = ReadonlyMap<string, readonly Sample[]>;

export function parseMetrics(text: string): Metrics {
    const metrics = new Map<string, Sample[]>();
    for (const line of text.split("\n")) {
        const parsed = line.startsWith("#") ? undefined : parseLine(line);
        if (!parsed) continue;
        const samples = metrics.get(parsed.name);
        if (samples) samples.push(parsed.sample);
        else metrics.set(parsed.name, [parsed.sample]);
    }
    return metrics;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

function parseLine(line: string): { name: string; sample: Sample } | undefined {
    const match = LINE.exec(line);
    const name = match?.[1];
    const value = number(match?.[3]);
    if (name === undefined || value === undefined) return undefined;
    const labels: Record<string, string> = {};
    for (const [, label, text] of (match?.[2] ?? "").matchAll(LABEL)) {
        if (label !== undefined && text !== undefined) labels[label] = unescaped(text);
    }
    return { name, sample: { labels, value } };
}

function number(text: string | undefined): number | undefined {
    if (text === "+Inf") return Number.POSITIVE_INFINITY;
    if (text === "-Inf") return Number.NEGATIVE_INFINITY;
    const value = Number(text);
    return text === undefined || Number.isNaN(value) ? undefined : value;
}

function unescaped(text: string): string {
    return text.replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c));
}

/** The first sample that has these labels. */
export function metric(metrics: Metrics, name: string, labels: Record<string, string> = {}): number | undefined {
    const has = (sample: Sample) => Object.entries(labels).every(([label, text]) => sample.labels[label] === text);
    return metrics.get(name)?.find(has)?.value;
}

export interface Histogram {
    /** Upper bounds, rising, the last infinite, and how many observations were at most so much. */
    buckets: readonly { most: number; count: number }[];
    sum: number;
    count: number;
}

export function histogram(metrics: Metrics, name: string): Histogram {
    const samples = metrics.get(`${name}_bucket`) ?? [];
    const buckets = samples.map(({ labels, value }) => ({ most: number(labels.le) ?? Number.NaN, count: value }));
    return {
        buckets: buckets.filter(({ most }) => !Number.isNaN(most)).sort((a, b) => a.most - b.most),
        sum: metric(metrics, `${name}_sum`) ?? 0,
        count: metric(metrics, `${name}_count`) ?? 0,
    };
}

/** What was observed between two moments. After a restart of the server that is what was observed since. */
export function since(before: Histogram, now: Histogram): Histogram {
    if (now.count < before.count) return now;
    const earlier = (most: number) => before.buckets.find((bucket) => bucket.most === most)?.count ?? 0;
    return {
        buckets: now.buckets.map(({ most, count }) => ({ most, count: count - earlier(most) })),
        sum: now.sum - before.sum,
        count: now.count - before.count,
    };
}

/** The value that this part of the observations is at most, as far as the buckets tell; undefined where there are none. */
export function quantile({ buckets, count }: Histogram, part: number): number | undefined {
    if (count === 0) return undefined;
    const wanted = part * count;
    let below = { most: 0, count: 0 };
    for (const bucket of buckets) {
        if (bucket.count >= wanted && bucket.count > below.count) {
            if (!Number.isFinite(bucket.most)) return below.most;
            const within = (wanted - below.count) / (bucket.count - below.count);
            return below.most + within * (bucket.most - below.most);
        }
        below = bucket;
    }
    return below.most;
}
