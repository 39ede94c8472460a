/** `/v1/chat/completions`. */

import { ApiError, errorFrom } from "../api/errors";
import type { SseFrame } from "../api/sse";
import { textOf } from "../db/text";
import type { Message, Usage } from "../db/types";
import {
    count,
    type Json,
    knobsFor,
    list,
    userContent as listed,
    progress,
    pull,
    record,
    spoken,
    text,
    userText,
} from "./common";
import type { AnswerEvent, Ask, Protocol, Reader } from "./types";

export const chat: Protocol = {
    name: "chat",
    title: "Chat completions",
    path: "/v1/chat/completions",
    headers: {},
    body,
    reader: () => new ChatReader(),
};

function body(ask: Ask): Json {
    const told = knobsFor(ask.settings, "chat");
    const parallel = pull(told, "parallel_tool_calls");
    const choice = pull(told, "tool_choice");
    const { schema } = ask.settings;
    return {
        model: ask.props?.model.name ?? "local",
        messages: messages(ask),
        ...Object.fromEntries(told),
        ...(ask.tools.length > 0 && {
            tools: ask.tools.map((tool) => ({ type: "function", function: tool })),
            ...(choice !== undefined && { tool_choice: choice }),
            ...(parallel !== undefined && { parallel_tool_calls: parallel === "yes" }),
        }),
        ...(schema && {
            response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict: true } },
        }),
        stream: true,
        stream_options: { include_usage: true },
        prefill_progress: true,
    };
}

/** The conversation as this protocol tells it, which `/apply-template` takes too. */
export function messages(ask: Pick<Ask, "path" | "settings">): Json[] {
    const system = ask.settings.system?.trim();
    const before = system ? [{ role: "system", content: system }] : [];
    return [...before, ...spoken(ask.path).flatMap(message)];
}

function message(message: Message): Json[] {
    switch (message.role) {
        case "user":
            return [{ role: "user", content: userContent(message) }];
        case "assistant":
            return [assistant(message)];
        case "tool":
            return message.parts
                .filter((part) => part.kind === "result")
                .map((part) => ({ role: "tool", tool_call_id: part.callId, name: part.name, content: part.content }));
    }
}

function userContent({ parts }: Message): string | Json[] {
    if (!parts.some((part) => part.kind === "image")) return userText(parts);
    return listed(
        parts,
        (url) => ({ type: "image_url", image_url: { url } }),
        (text) => ({ type: "text", text }),
    );
}

function assistant({ parts }: Message): Json {
    const calls = parts.filter((part) => part.kind === "call");
    const thought = parts
        .filter((part) => part.kind === "thinking")
        .map((part) => part.text)
        .join("");
    return {
        role: "assistant",
        content: textOf(parts),
        ...(thought && { reasoning_content: thought }),
        ...(calls.length > 0 && {
            tool_calls: calls.map((call) => ({
                id: call.id,
                type: "function",
                function: { name: call.name, arguments: call.arguments },
            })),
        }),
    };
}

const finishes: Record<string, "stop" | "length" | "calls"> = { stop: "stop", length: "length", tool_calls: "calls" };

export function usageFrom(told: Json): Usage {
    return {
        prompt: count(told.prompt_tokens),
        output: count(told.completion_tokens),
        cached: count(record(told.prompt_tokens_details).cached_tokens),
        thinking: count(record(told.completion_tokens_details).reasoning_tokens),
    };
}

class ChatReader implements Reader {
    ended = false;
    private begun = false;

    read(frame: SseFrame): AnswerEvent[] {
        if (frame.data === "[DONE]") {
            this.ended = true;
            return [];
        }
        const chunk = parse(frame.data);
        if (chunk.error) throw errorFrom(chunk, 500);
        const events: AnswerEvent[] = [];
        if (!this.begun && text(chunk.id)) {
            this.begun = true;
            events.push({ kind: "begun", id: text(chunk.id) });
        }
        events.push(...progress(chunk));
        for (const choice of list(chunk.choices)) this.choice(record(choice), events);
        if (chunk.usage) events.push({ kind: "usage", usage: usageFrom(record(chunk.usage)) });
        return events;
    }

    private choice(choice: Json, events: AnswerEvent[]): void {
        const delta = record(choice.delta);
        const thought = text(delta.reasoning_content) || text(delta.reasoning);
        if (thought) events.push({ kind: "thinking", text: thought });
        const said = text(delta.content) || text(choice.text);
        if (said) events.push({ kind: "text", text: said });
        for (const piece of list(delta.tool_calls).map(record)) {
            const index = count(piece.index);
            const call = record(piece.function);
            if (text(piece.id)) events.push({ kind: "call", index, id: text(piece.id), name: text(call.name) });
            if (text(call.arguments)) events.push({ kind: "arguments", index, text: text(call.arguments) });
        }
        const finish = finishes[text(choice.finish_reason)];
        if (finish) events.push({ kind: "finish", reason: finish });
    }
}

/** The object of a frame. */
export function parse(data: string): Json {
    try {
        return record(JSON.parse(data));
    } catch {
        throw new ApiError("The server sent an event that is not JSON.", { status: 500 });
    }
}
