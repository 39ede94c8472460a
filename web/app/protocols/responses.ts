/** `/v1/responses`. */

import { ApiError, errorFrom } from "../api/errors";
import type { SseFrame } from "../api/sse";
import type { Message } from "../db/types";
import { parse } from "./chat";
import { count, type Json, knobsFor, progress, pull, record, spoken, text, userContent } from "./common";
import type { AnswerEvent, Ask, Protocol, Reader } from "./types";

export const responses: Protocol = {
    name: "responses",
    title: "Responses",
    path: "/v1/responses",
    headers: {},
    body,
    reader: () => new ResponsesReader(),
};

function body(ask: Ask): Json {
    const told = knobsFor(ask.settings, "responses");
    const longest = pull(told, "max_tokens");
    const effort = pull(told, "reasoning_effort");
    const budget = pull(told, "reasoning_budget_tokens");
    const parallel = pull(told, "parallel_tool_calls");
    const choice = pull(told, "tool_choice");
    const { schema, system } = ask.settings;
    const reasoning = {
        ...(effort !== undefined && { effort }),
        ...(budget !== undefined && { max_tokens: budget }),
    };
    return {
        model: ask.props?.model.name ?? "local",
        ...(system?.trim() && { instructions: system.trim() }),
        input: spoken(ask.path).flatMap(items),
        ...Object.fromEntries(told),
        ...(longest !== undefined && { max_output_tokens: longest }),
        ...(Object.keys(reasoning).length > 0 && { reasoning }),
        ...(ask.tools.length > 0 && {
            tools: ask.tools.map((tool) => ({ type: "function", ...tool })),
            ...(choice !== undefined && { tool_choice: choice }),
            ...(parallel !== undefined && { parallel_tool_calls: parallel === "yes" }),
        }),
        ...(schema && { text: { format: { type: "json_schema", name: "answer", schema, strict: true } } }),
        // The page keeps conversations itself.
        store: false,
        stream: true,
        prefill_progress: true,
    };
}

function items(message: Message): Json[] {
    switch (message.role) {
        case "user":
            return [{ type: "message", role: "user", content: content(message) }];
        case "assistant":
            return message.parts.map(item).filter((item) => item !== undefined);
        case "tool":
            return message.parts
                .filter((part) => part.kind === "result")
                .map((part) => ({ type: "function_call_output", call_id: part.callId, output: part.content }));
    }
}

function content({ parts }: Message): Json[] {
    return userContent(
        parts,
        (url) => ({ type: "input_image", image_url: url, detail: "auto" }),
        (text) => ({ type: "input_text", text }),
    );
}

function item(part: Message["parts"][number]): Json | undefined {
    switch (part.kind) {
        case "text":
            return { type: "message", role: "assistant", content: [{ type: "output_text", text: part.text }] };
        case "thinking":
            return { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: part.text }] };
        case "call":
            return { type: "function_call", call_id: part.id, name: part.name, arguments: part.arguments };
        default:
            return undefined;
    }
}

class ResponsesReader implements Reader {
    ended = false;
    private called = false;

    read(frame: SseFrame): AnswerEvent[] {
        const event = parse(frame.data);
        const index = count(event.output_index);
        switch (event.type) {
            case "response.created":
                return [{ kind: "begun", id: text(record(event.response).id) }];
            case "response.in_progress":
                return progress(event);
            case "response.output_item.added": {
                const item = record(event.item);
                if (item.type !== "function_call") return [];
                this.called = true;
                return [{ kind: "call", index, id: text(item.call_id), name: text(item.name) }];
            }
            case "response.output_text.delta":
                return [{ kind: "text", text: text(event.delta) }];
            case "response.reasoning_text.delta":
            case "response.reasoning_summary_text.delta":
                return [{ kind: "thinking", text: text(event.delta) }];
            case "response.function_call_arguments.delta":
                return [{ kind: "arguments", index, text: text(event.delta) }];
            case "response.completed":
            case "response.incomplete":
                return this.end(record(event.response));
            case "error":
                throw errorFrom(event, 500);
            case "response.failed":
                throw errorFrom(record(event.response), 500);
            default:
                return [];
        }
    }

    private end(response: Json): AnswerEvent[] {
        this.ended = true;
        if (response.status === "cancelled") throw new ApiError("The answer was cancelled.", { status: 500 });
        const used = record(response.usage);
        const usage = {
            prompt: count(used.input_tokens),
            output: count(used.output_tokens),
            cached: count(record(used.input_tokens_details).cached_tokens),
            thinking: count(record(used.output_tokens_details).reasoning_tokens),
        };
        const reason = response.status === "incomplete" ? "length" : this.called ? "calls" : "stop";
        return [
            { kind: "finish", reason },
            { kind: "usage", usage },
        ];
    }
}
