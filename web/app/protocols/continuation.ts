/**
 * Going on with an answer that was cut off. Protocols of conversations begin a new turn after the last message, so the
 * prompt is rendered with a mark in the answer's place, cut at the mark, and completed as a text.
 */

import { requestJson } from "../api/client";
import { ApiError } from "../api/errors";
import { textOf } from "../db/text";
import type { Message } from "../db/types";
import { chat, messages } from "./chat";
import { type Json, knobsFor } from "./common";
import type { Ask, Reader } from "./types";

const COMPLETIONS = "/v1/completions";
const MARK = "ANSWERGOESONHERE";

/** Knobs that are of conversations alone. */
const OF_CHAT = [
    "reasoning_effort",
    "reasoning_budget_tokens",
    "chat_template_kwargs",
    "tool_choice",
    "parallel_tool_calls",
];

export interface Continuation {
    path: string;
    body: Json;
    reader: Reader;
}

/** Whether there is a text that can be gone on with. */
export function canContinue(message: Message): boolean {
    return message.parts.at(-1)?.kind === "text";
}

/** The request that goes on with the last message of the path, an answer. */
export async function continuation(ask: Ask, answer: Message): Promise<Continuation> {
    const parts = answer.parts.filter((part) => part.kind !== "text");
    const marked: Message = { ...answer, parts: [...parts, { kind: "text", text: MARK }] };
    const rendered = await requestJson<{ prompt: string }>("/apply-template", {
        body: {
            messages: messages({ path: [...ask.path, marked], settings: ask.settings }),
            ...(ask.tools.length > 0 && { tools: ask.tools.map((tool) => ({ type: "function", function: tool })) }),
            chat_template_kwargs: {
                ...asObject(ask.settings.knobs.chat_template_kwargs),
                add_generation_prompt: false,
            },
        },
    });
    const at = rendered.prompt.lastIndexOf(MARK);
    if (at < 0) {
        throw new ApiError("The model's template leaves no place to go on from.", { status: -1, code: "no_place" });
    }
    const told = knobsFor(ask.settings, "chat");
    for (const name of OF_CHAT) told.delete(name);
    return {
        path: COMPLETIONS,
        body: {
            model: ask.props?.model.name ?? "local",
            prompt: rendered.prompt.slice(0, at) + textOf(answer.parts),
            ...Object.fromEntries(told),
            stream: true,
            stream_options: { include_usage: true },
            prefill_progress: true,
        },
        // Pieces of a text differ from those of a conversation only in where the text stands.
        reader: chat.reader(),
    };
}

function asObject(value: unknown): Json {
    return typeof value === "object" && value !== null ? (value as Json) : {};
}
