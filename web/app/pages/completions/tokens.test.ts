import { describe, expect, it } from "vitest";
import { drawn, isWritable, perplexity, surprise, textOf } from "./tokens";

describe("drawn", () => {
    it("has each token with its alternatives, likeliest first", () => {
        const chunk = {
            choices: [
                {
                    text: " a",
                    finish_reason: null,
                    logprobs: {
                        tokens: [" a"],
                        token_logprobs: [-1],
                        top_logprobs: [{ " b": -2, " c": -0.5, " a": -1 }],
                    },
                },
            ],
        };
        expect(drawn(chunk)[0]?.top.map(({ text }) => text)).toEqual([" c", " a", " b"]);
    });

    it("is nothing where nothing is told", () => {
        expect(drawn({})).toEqual([]);
        expect(drawn({ choices: [{ text: "", finish_reason: "stop", logprobs: null }] })).toEqual([]);
    });
});

const token = (text: string, logprob = -1) => ({ text, logprob });

it("joins the parts of a character", () => {
    expect(textOf([token("a "), token("bytes:\\xf0\\x9f"), token("bytes:\\x90\\x94"), token("!")])).toBe("a 🐔!");
    expect(textOf([token("bytes: plain")])).toBe("bytes: plain");
    expect([token("bytes:\\xf0"), token("bytes: x")].map(isWritable)).toEqual([false, true]);
});

it("tells how unlikely tokens were", () => {
    expect([1, 0.95, 0.7, 0.4, 0.2, 0.01].map((p) => surprise(token("", Math.log(p))))).toEqual([0, 0, 1, 2, 3, 4]);
    expect(perplexity([token("", Math.log(0.5)), token("", Math.log(0.5))])).toBeCloseTo(2);
    expect(perplexity([])).toBeUndefined();
});
