import { readFileSync } from "node:fs";
import { SseParser } from "../api/sse";
import type { AnswerEvent, Reader } from "../protocols/types";

/** The events of an answer as a server sent it. */
export function replay(name: string, reader: Reader): AnswerEvent[] {
    const text = readFileSync(new URL(`./frames/${name}.sse`, import.meta.url), "utf8");
    return new SseParser().push(text).flatMap((frame) => reader.read(frame));
}

/** All that was said in events of one kind. */
export function joined(events: readonly AnswerEvent[], kind: "text" | "thinking"): string {
    return events.map((event) => (event.kind === kind ? event.text : "")).join("");
}

/** The calls of an answer with all that came of their arguments. */
export function calls(events: readonly AnswerEvent[]): { name: string; arguments: string }[] {
    return events
        .filter((event) => event.kind === "call")
        .map(({ index, name }) => {
            const pieces = events.map((event) =>
                event.kind === "arguments" && event.index === index ? event.text : "",
            );
            return { name, arguments: pieces.join("") };
        });
}
