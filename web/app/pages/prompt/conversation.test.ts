import { describe, expect, it } from "vitest";
import { asked, asTemplateTakesIt, first } from "./conversation";

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

it("takes of a chat request what makes its prompt", () => {
    const request = { messages: [], tools: [], reasoning_effort: "low", stream: true, temperature: 1 };
    expect(asTemplateTakesIt(request)).toEqual({
        messages: [],
        tools: [],
        reasoning_effort: "low",
        with_pieces: true,
    });
});
