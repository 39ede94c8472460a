import { describe, expect, it } from "vitest";
import { ApiError } from "../api/errors";
import type { ImagePart, Message, Part } from "../db/types";
import { plainSettings, type Settings } from "../settings/settings";
import { calls, joined, replay } from "../testing/frames";
import { protocols } from ".";
import type { Ask, Protocol } from "./types";

const all = Object.values(protocols);

describe.each(all)("$title", (protocol: Protocol) => {
    it("tells thinking, text, usage and the end of a recorded answer", () => {
        const reader = protocol.reader();
        const events = replay(`${protocol.name}-thinking`, reader);
        expect(events[0]?.kind).toBe("begun");
        expect(joined(events, "thinking")).toContain("The person wants a greeting. I say it.");
        expect(joined(events, "text").trim()).toBe("Hello there.");
        expect(events).toContainEqual({ kind: "finish", reason: "stop" });
        const usage = events.find((event) => event.kind === "usage")?.usage;
        expect(usage?.prompt).toBeGreaterThan(0);
        expect(usage?.thinking).toBeGreaterThan(0);
        expect(usage?.output).toBeGreaterThan(usage?.thinking ?? 0);
        expect(reader.ended).toBe(true);
    });

    it("keeps calls of a recorded answer apart, of which the last was cut off", () => {
        const reader = protocol.reader();
        const events = replay(`${protocol.name}-calls`, reader);
        expect(events[0]?.kind).toBe("begun");
        expect(calls(events).map((call) => call.name)).toEqual(["weather", "weather", "weather"]);
        const [first, second, third] = calls(events).map((call) => call.arguments);
        expect([JSON.parse(first ?? ""), JSON.parse(second ?? "")]).toEqual([{ city: "Bern" }, { city: "Basel" }]);
        expect(() => JSON.parse(third ?? "")).toThrow();
        const ids = events.filter((event) => event.kind === "call").map((event) => event.id);
        expect(new Set(ids).size).toBe(3);
        expect(events).toContainEqual({ kind: "finish", reason: "length" });
        const usage = events.find((event) => event.kind === "usage")?.usage;
        expect(usage).toMatchObject({ output: 80, thinking: 0 });
        expect(usage?.cached).toBeLessThan(usage?.prompt ?? 0);
        expect(reader.ended).toBe(true);
    });

    it("has not ended where the stream was cut", () => {
        const reader = protocol.reader();
        reader.read({ event: "message", data: JSON.stringify({ id: "x", type: "response.created", choices: [] }) });
        expect(reader.ended).toBe(false);
    });

    it("throws what an event of failure says", () => {
        const data = JSON.stringify({ type: "error", message: "gone", error: { message: "gone" } });
        expect(() => protocol.reader().read({ event: "error", data })).toThrow("gone");
        expect(() => protocol.reader().read({ event: "error", data })).toThrow(ApiError);
        expect(() => protocol.reader().read({ event: "message", data: "{" })).toThrow(ApiError);
    });

    it("asks how far the prompt is and tells what it is told", () => {
        expect(protocol.body(ask({}))).toMatchObject({ stream: true, prefill_progress: true });
        // As the server writes them.
        const told = { prompt_progress: { total: 900, cache: 100, processed: 400 } };
        const frames = {
            chat: { id: "chatcmpl-1", choices: [], ...told },
            messages: { type: "ping", ...told },
            responses: { type: "response.in_progress", response: { id: "resp_1" }, sequence_number: 2, ...told },
        };
        const events = protocol.reader().read({ event: "message", data: JSON.stringify(frames[protocol.name]) });
        expect(events).toContainEqual({ kind: "progress", done: 400, total: 900, cached: 100 });
    });

    it("sends the text of files and what tools gave back", () => {
        const body = JSON.stringify(protocol.body(ask({})));
        expect(body).toContain('<file name=\\"a.txt\\">\\nin the file\\n</file>');
        expect(body).toContain("sunny");
        expect(body).toContain("call_1");
    });

    it("asks for the schema, the tools and the system prompt that are set", () => {
        const schema = { type: "object", properties: { unusual: { type: "string" } } };
        const body = JSON.stringify(protocol.body(ask({ system: "Be brief.", schema })));
        expect(body).toContain("Be brief.");
        expect(body).toContain(JSON.stringify(schema));
        expect(body).toContain('"name":"weather"');
        expect(body).toContain('"stream":true');
    });
});

const question: Part[] = [
    { kind: "file", name: "a.txt", size: 3, text: "in the file" },
    { kind: "text", text: "Weather?" },
];

function ask(settings: Partial<Settings>, said = question): Ask {
    const parts: [Message["role"], Part[]][] = [
        ["user", said],
        ["assistant", [{ kind: "call", id: "call_1", name: "weather", arguments: '{"city":"Bern"}' }]],
        ["tool", [{ kind: "result", callId: "call_1", name: "weather", content: "sunny" }]],
        ["assistant", []],
    ];
    const path = parts.map(([role, parts], index) => ({
        id: `m${index}`,
        conversation: "c",
        parent: index === 0 ? null : `m${index - 1}`,
        role,
        at: index,
        revision: 0,
        parts,
    }));
    return {
        path,
        settings: { ...plainSettings, ...settings },
        tools: [{ name: "weather", parameters: { type: "object" } }],
        props: undefined,
    };
}

describe("where protocols differ", () => {
    const knobs = { temperature: 0.5, max_tokens: 7, min_p: 0.1, reasoning_effort: "low", stop: ["END"] };

    it("chat takes knobs by their own names", () => {
        expect(protocols.chat.body(ask({ knobs }))).toMatchObject(knobs);
    });

    it("responses have names of their own for length and effort", () => {
        const body = protocols.responses.body(ask({ knobs }));
        expect(body).toMatchObject({ max_output_tokens: 7, reasoning: { effort: "low" }, min_p: 0.1, store: false });
        expect(body).not.toHaveProperty("max_tokens");
    });

    it("messages need a length, name stops otherwise and know no min-p", () => {
        const body = protocols.messages.body(ask({ knobs }));
        expect(body).toMatchObject({ max_tokens: 7, stop_sequences: ["END"], output_config: { effort: "low" } });
        expect(body).not.toHaveProperty("min_p");
        expect(protocols.messages.body(ask({}))).toMatchObject({ max_tokens: 4096 });
    });

    it("messages have signs of life, which tell nothing", () => {
        const sign = JSON.stringify({ type: "ping" });
        expect(protocols.messages.reader().read({ event: "ping", data: sign })).toEqual([]);
    });

    it("no thinking is said in each one's way", () => {
        const off = ask({ knobs: { reasoning_effort: "none" } });
        expect(protocols.chat.body(off)).toMatchObject({ reasoning_effort: "none" });
        expect(protocols.responses.body(off)).toMatchObject({ reasoning: { effort: "none" } });
        expect(protocols.messages.body(off)).toMatchObject({ thinking: { type: "disabled" } });
    });

    const png: ImagePart = { kind: "image", name: "a.png", url: "data:image/png;base64,iVBORw0KGgo=" };
    const jpeg: ImagePart = { kind: "image", name: "b.jpg", url: "data:image/jpeg;base64,/9j/4A==" };

    it.each([
        ["with words", [png, ...question, jpeg], true],
        ["alone", [png, jpeg], false],
    ])("images are told in each one's way, before the words about them: %s", (_, said: Part[], words: boolean) => {
        const text = '<file name="a.txt">\nin the file\n</file>\n\nWeather?';
        const first = (name: "chat" | "responses" | "messages", list: string) =>
            (protocols[name].body(ask({}, said))[list] as Record<string, unknown>[])[0];
        expect(first("chat", "messages")).toEqual({
            role: "user",
            content: [
                { type: "image_url", image_url: { url: png.url } },
                { type: "image_url", image_url: { url: jpeg.url } },
                ...(words ? [{ type: "text", text }] : []),
            ],
        });
        expect(first("responses", "input")).toEqual({
            type: "message",
            role: "user",
            content: [
                { type: "input_image", image_url: png.url, detail: "auto" },
                { type: "input_image", image_url: jpeg.url, detail: "auto" },
                ...(words ? [{ type: "input_text", text }] : []),
            ],
        });
        const source = (media_type: string, data: string) => ({
            type: "image",
            source: { type: "base64", media_type, data },
        });
        expect(first("messages", "messages")).toEqual({
            role: "user",
            content: [
                source("image/png", "iVBORw0KGgo="),
                source("image/jpeg", "/9j/4A=="),
                ...(words ? [{ type: "text", text }] : []),
            ],
        });
    });

    it("answers without a word are left out", () => {
        expect(protocols.chat.body(ask({})).messages).toHaveLength(3);
    });
});
