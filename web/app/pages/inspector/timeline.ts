/** When the parts of an answer arrived. */

import type { Recorded } from "../../api/recorder";

/** How many frames arrived in each of `bins` equal parts of the time that the request took. */
export function arrivals({ frames, duration }: Pick<Recorded, "frames" | "duration">, bins: number): number[] {
    const counts = new Array<number>(bins).fill(0);
    const end = Math.max(1, duration ?? 0, frames.at(-1)?.at ?? 0);
    for (const { at } of frames) {
        const bin = Math.min(bins - 1, Math.floor((at / end) * bins));
        counts[bin] = (counts[bin] ?? 0) + 1;
    }
    return counts;
}

/** Whether a request has all words of a filter in its method, path, status or bodies. */
export function matches(record: Recorded, filter: string): boolean {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return true;
    const texts = [
        record.method,
        record.path,
        String(record.status ?? ""),
        record.failure,
        record.body,
        record.response,
    ];
    const lower = texts.map((text) => text?.toLowerCase() ?? "");
    const has = (word: string) =>
        lower.some((text) => text.includes(word)) ||
        record.frames.some((frame) => frame.data.toLowerCase().includes(word));
    return words.every(has);
}

/** Where the events of the protocols have what they bring. */
const NEWS = [
    ["choices", "0", "delta", "reasoning_content"],
    ["choices", "0", "delta", "content"],
    ["choices", "0", "text"],
    ["delta", "thinking"],
    ["delta", "text"],
    ["delta", "partial_json"],
    ["delta"],
];

/** What an event brings, in one line: its text where it has one, otherwise all of it. */
export function gist(data: string): string {
    try {
        const event: unknown = JSON.parse(data);
        for (const path of NEWS) {
            const found = path.reduce<unknown>((value, key) => (value as Record<string, unknown> | null)?.[key], event);
            if (typeof found === "string" && found !== "") return JSON.stringify(found);
        }
    } catch {
        // No JSON: as it is.
    }
    return data;
}

/** JSON with its structure shown; other text as it is. */
export function pretty(text: string): string {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
        return text;
    }
}
