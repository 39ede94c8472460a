/** What is kept of conversations. Nothing here depends on the protocol that an answer came by. */

import type { Settings } from "../settings/settings";

export interface TextPart {
    kind: "text";
    text: string;
}

export interface ThinkingPart {
    kind: "thinking";
    text: string;
    /** How long it took, in milliseconds. */
    ms?: number;
}

/** A call of a tool. */
export interface CallPart {
    kind: "call";
    id: string;
    name: string;
    /** JSON, or what there is of it. */
    arguments: string;
}

/** What a tool gave back. */
export interface ResultPart {
    kind: "result";
    callId: string;
    name: string;
    content: string;
    failed?: boolean;
}

export interface ImagePart {
    kind: "image";
    name: string;
    /** A `data:` address. */
    url: string;
}

/** A file that was read in the browser. */
export interface FilePart {
    kind: "file";
    name: string;
    /** Bytes of the file itself. */
    size: number;
    text: string;
    tokens?: number;
}

export type Part = TextPart | ThinkingPart | CallPart | ResultPart | ImagePart | FilePart;

export interface Usage {
    prompt: number;
    cached: number;
    output: number;
    thinking: number;
}

/** Milliseconds: from the request to the first token, of the tokens after it, of all. */
export interface Times {
    first: number;
    decode: number;
    total: number;
}

export type AnswerState = "streaming" | "done" | "stopped" | "interrupted" | "failed";

/** How an answer came about. */
export interface AnswerInfo {
    state: AnswerState;
    protocol: string;
    model: string;
    finish?: "stop" | "length" | "calls";
    usage?: Usage;
    times?: Times;
    error?: { message: string; advice: string };
    /** The schema that the answer was asked to keep to. */
    schema?: unknown;
}

export interface Message {
    id: string;
    conversation: string;
    /** The message before; null for the first. */
    parent: string | null;
    role: "user" | "assistant" | "tool";
    /** Milliseconds since 1970. */
    at: number;
    /** Goes up with each change, so that what is on the page is known to be the same. */
    revision: number;
    parts: Part[];
    answer?: AnswerInfo;
}

export interface Conversation {
    id: string;
    title: string;
    /** Whether the person gave the title. */
    named: boolean;
    created: number;
    updated: number;
    /** The message that the shown branch ends with. */
    leaf: string | null;
    settings: Settings;
}

/** What there is of an answer under way, saved now and then. */
export interface PartialAnswer {
    /** The message. */
    id: string;
    conversation: string;
    /** The tab that receives it. */
    tab: string;
    /** When it was saved. */
    at: number;
    parts: Part[];
    answer: AnswerInfo;
}

/** A system prompt of the library. */
export interface Prompt {
    id: string;
    name: string;
    text: string;
    updated: number;
}
