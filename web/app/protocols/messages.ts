/** `/v1/messages`. */

import { errorFrom } from "../api/errors";
import type { SseFrame } from "../api/sse";
import type { Message, Usage } from "../db/types";
import { parse } from "./chat";
import {
    count,
    type Json,
    knobsFor,
    parsedArguments,
    progress,
    pull,
    record,
    spoken,
    text,
    userContent,
} from "./common";
import type { AnswerEvent, Ask, Protocol, Reader } from "./types";

export const messages: Protocol = {
    name: "messages",
    title: "Messages",
    path: "/v1/messages",
    headers: { "anthropic-version": "2023-06-01" },
    body,
    reader: () => new MessagesReader(),
};

/** The longest answer where neither the conversation nor the server names one: the protocol wants a number. */
const LONGEST = 4096;

function body(ask: Ask): Json {
    const told = knobsFor(ask.settings, "messages");
    const longest = pull(told, "max_tokens") ?? ask.props?.max_tokens ?? LONGEST;
    const stop = pull(told, "stop");
    const parallel = pull(told, "parallel_tool_calls");
    const choice = pull(told, "tool_choice");
    const effort = pull(told, "reasoning_effort");
    const budget = pull(told, "reasoning_budget_tokens");
    const { schema, system } = ask.settings;
    const config = {
        ...(effort !== undefined && effort !== "none" && { effort }),
        ...(schema && { format: { type: "json_schema", schema } }),
    };
    return {
        model: ask.props?.model.name ?? "local",
        ...(system?.trim() && { system: system.trim() }),
        messages: spoken(ask.path).map(message),
        max_tokens: longest,
        ...Object.fromEntries(told),
        ...(stop !== undefined && { stop_sequences: stop }),
        ...thinking(ask, effort, budget),
        ...(Object.keys(config).length > 0 && { output_config: config }),
        ...(ask.tools.length > 0 && {
            tools: ask.tools.map(({ name, description, parameters }) => ({
                name,
                ...(description !== undefined && { description }),
                input_schema: parameters,
            })),
            ...((choice !== undefined || parallel === "no") && {
                tool_choice: {
                    type: choice === "required" ? "any" : (choice ?? "auto"),
                    ...(parallel === "no" && choice !== "none" && { disable_parallel_tool_use: true }),
                },
            }),
        }),
        stream: true,
        prefill_progress: true,
    };
}

/** Where a request says nothing this protocol does not think; the page leaves it to the model, as the others do. */
function thinking(ask: Ask, effort: unknown, budget: unknown): Json {
    if (effort === "none" || budget === 0) return { thinking: { type: "disabled" } };
    if (typeof budget === "number") return { thinking: { type: "enabled", budget_tokens: budget } };
    return ask.props?.capabilities.reasoning ? { thinking: { type: "adaptive" } } : {};
}

function message(message: Message): Json {
    return { role: message.role === "assistant" ? "assistant" : "user", content: content(message) };
}

function content({ role, parts }: Message): Json[] {
    if (role === "user") return userContent(parts, image, (text) => ({ type: "text", text }));
    return parts.map(block).filter((block) => block !== undefined);
}

function block(part: Message["parts"][number]): Json | undefined {
    switch (part.kind) {
        case "text":
            return { type: "text", text: part.text };
        case "thinking":
            return { type: "thinking", thinking: part.text, signature: "" };
        case "call":
            return { type: "tool_use", id: part.id, name: part.name, input: parsedArguments(part.arguments) };
        case "result":
            return {
                type: "tool_result",
                tool_use_id: part.callId,
                content: part.content,
                ...(part.failed && { is_error: true }),
            };
        default:
            return undefined;
    }
}

function image(url: string): Json {
    const [, type = "image/png", data = ""] = /^data:([^;,]+);base64,(.*)$/s.exec(url) ?? [];
    return { type: "image", source: { type: "base64", media_type: type, data } };
}

class MessagesReader implements Reader {
    ended = false;
    private input = 0;
    private cached = 0;

    read(frame: SseFrame): AnswerEvent[] {
        const event = parse(frame.data);
        const index = count(event.index);
        switch (event.type) {
            case "message_start": {
                const message = record(event.message);
                this.usage(record(message.usage));
                return [{ kind: "begun", id: text(message.id) }];
            }
            case "content_block_start": {
                const block = record(event.content_block);
                if (block.type !== "tool_use") return [];
                return [{ kind: "call", index, id: text(block.id), name: text(block.name) }];
            }
            case "content_block_delta":
                return delta(record(event.delta), index);
            case "message_delta": {
                const reason = text(record(event.delta).stop_reason);
                const finish = reason === "max_tokens" ? "length" : reason === "tool_use" ? "calls" : "stop";
                return [
                    { kind: "finish", reason: finish },
                    { kind: "usage", usage: this.usage(record(event.usage)) },
                ];
            }
            case "ping":
                return progress(event);
            case "message_stop":
                this.ended = true;
                return [];
            case "error":
                throw errorFrom(event, 500);
            default:
                return [];
        }
    }

    /** Input tokens are told without those from the cache. */
    private usage(told: Json): Usage {
        if (typeof told.input_tokens === "number") this.input = told.input_tokens;
        if (typeof told.cache_read_input_tokens === "number") this.cached = told.cache_read_input_tokens;
        return {
            prompt: this.input + this.cached,
            cached: this.cached,
            output: count(told.output_tokens),
            thinking: count(record(told.output_tokens_details).thinking_tokens),
        };
    }
}

function delta(delta: Json, index: number): AnswerEvent[] {
    switch (delta.type) {
        case "text_delta":
            return [{ kind: "text", text: text(delta.text) }];
        case "thinking_delta":
            return [{ kind: "thinking", text: text(delta.thinking) }];
        case "input_json_delta":
            return [{ kind: "arguments", index, text: text(delta.partial_json) }];
        default:
            return [];
    }
}
