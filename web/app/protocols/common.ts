import type { FilePart, Message, Part } from "../db/types";
import { knobs } from "../settings/knobs";
import type { KnobValue, ProtocolName, Settings } from "../settings/settings";
import type { AnswerEvent } from "./types";

export type Json = Record<string, unknown>;

export function record(value: unknown): Json {
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

export function list(value: unknown): unknown[] {
    return Array.isArray(value) ? value : [];
}

export function text(value: unknown): string {
    return typeof value === "string" ? value : "";
}

export function count(value: unknown): number {
    return typeof value === "number" ? value : 0;
}

/** A file as the model reads it. */
export function fileText(file: FilePart): string {
    return `<file name="${file.name.replace(/["<>]/g, "")}">\n${file.text}\n</file>`;
}

/** What a person said, files before the words about them. */
export function userText(parts: readonly Part[]): string {
    const files = parts.filter((part) => part.kind === "file").map(fileText);
    const said = parts.filter((part) => part.kind === "text").map((part) => part.text);
    return [...files, ...said].filter((text) => text !== "").join("\n\n");
}

/** What a person said as a list: images, each as a protocol has it, before the words about them. */
export function userContent(
    parts: readonly Part[],
    image: (url: string) => Json,
    words: (text: string) => Json,
): Json[] {
    const images = parts.filter((part) => part.kind === "image").map((part) => image(part.url));
    const text = userText(parts);
    return text === "" && images.length > 0 ? images : [...images, words(text)];
}

/** Arguments of a call as an object, as some protocols want them. What was cut off is none. */
export function parsedArguments(json: string): Json {
    try {
        return record(JSON.parse(json));
    } catch {
        return {};
    }
}

/** The knobs that this protocol has, by name. */
export function knobsFor(settings: Settings, protocol: ProtocolName): Map<string, KnobValue> {
    const told = new Map<string, KnobValue>();
    for (const knob of knobs) {
        const value = settings.knobs[knob.name];
        if (value !== undefined && knob.protocols.includes(protocol)) told.set(knob.name, value);
    }
    return told;
}

/** Takes a knob out, for those that stand elsewhere in a protocol. */
export function pull(told: Map<string, KnobValue>, name: string): KnobValue | undefined {
    const value = told.get(name);
    told.delete(name);
    return value;
}

/** How far the prompt is, where an event tells. */
export function progress(event: Json): AnswerEvent[] {
    const { total, processed, cache } = record(event.prompt_progress);
    if (typeof total !== "number") return [];
    return [{ kind: "progress", done: count(processed), total, cached: count(cache) }];
}

/** Messages that say something. An answer that failed before its first word is passed over. */
export function spoken(path: readonly Message[]): Message[] {
    return path.filter((message) => message.parts.length > 0);
}
