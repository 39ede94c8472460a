import { describe, expect, it } from "vitest";
import type { Recorded } from "../../api/recorder";
import { asked, first, lastRequest } from "./conversation";

describe("asked", () => {
    it("is what the template is given", () => {
        const draft = {
            ...first,
            tools: '[{"type": "function"}]',
            variables: '{"enable_thinking": false}',
            effort: "low",
        };
        expect(asked(draft)).toEqual({
            body: {
                messages: [
                    { role: "system", content: "You are a helpful assistant." },
                    { role: "user", content: "Which came first?" },
                ],
                with_pieces: true,
                tools: [{ type: "function" }],
                chat_template_kwargs: { enable_thinking: false },
                reasoning_effort: "low",
            },
        });
    });

    it("names what is no JSON of the right form", () => {
        const told = asked({ ...first, tools: "{}", variables: "[" });
        expect(told).toMatchObject({
            wrong: { tools: "A JSON array of tools.", variables: expect.stringContaining("JSON") },
        });
    });
});

it("finds the last request of a chat", () => {
    const record = (path: string, body?: object) =>
        ({ path, body: body && JSON.stringify(body) }) as unknown as Recorded;
    const chat = record("/v1/chat/completions", { messages: [], stream: true, temperature: 1 });
    expect(lastRequest([record("/v1/completions", { prompt: "" }), chat, record("/v1/chat/completions", {})])).toEqual({
        messages: [],
        temperature: 1,
        with_pieces: true,
    });
    expect(lastRequest([])).toBeUndefined();
});
