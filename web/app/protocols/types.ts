/** What the chat knows of a protocol: how to ask, and how to understand what comes back. */

import type { Props } from "../api/props";
import type { SseFrame } from "../api/sse";
import type { Message, Usage } from "../db/types";
import type { ProtocolName, Settings, ToolDeclaration } from "../settings/settings";

/** All that a request is made of. */
export interface Ask {
    /** From the first to the one that is to be answered. */
    path: readonly Message[];
    settings: Settings;
    /** Declared and built-in ones. */
    tools: readonly ToolDeclaration[];
    props: Props | undefined;
}

export type AnswerEvent =
    /** The answer has a name, by which its thinking can be ended. */
    | { kind: "begun"; id: string }
    /** How far the prompt is, in tokens. */
    | { kind: "progress"; done: number; total: number; cached: number }
    | { kind: "thinking"; text: string }
    | { kind: "text"; text: string }
    | { kind: "call"; index: number; id: string; name: string }
    | { kind: "arguments"; index: number; text: string }
    | { kind: "usage"; usage: Usage }
    | { kind: "finish"; reason: "stop" | "length" | "calls" };

/** Understands the events of one answer. */
export interface Reader {
    /** What an event says. Throws an `ApiError` where it tells of a failure. */
    read(frame: SseFrame): AnswerEvent[];
    /** Whether the answer came to its end. */
    readonly ended: boolean;
}

export interface Protocol {
    name: ProtocolName;
    title: string;
    path: string;
    headers: Record<string, string>;
    body(ask: Ask): Record<string, unknown>;
    reader(): Reader;
}
