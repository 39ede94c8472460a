import { expect, it } from "vitest";
import { body, defaults, problems } from "./options";

it("leaves what was not chosen to the server", () => {
    expect(body("Once", defaults)).toEqual({
        prompt: "Once",
        stream: true,
        stream_options: { include_usage: true },
        max_tokens: 128,
        logprobs: 8,
    });
});

it("asks for all that was chosen", () => {
    const options = {
        ...defaults,
        numbers: { temperature: "0", seed: "7", top_k: "" },
        maxTokens: "",
        stop: "END\n\\n\\n\n",
        logitBias: '{"42": -5}',
        ignoreEos: true,
    };
    expect(problems(options)).toEqual({});
    expect(body("", options)).toMatchObject({
        temperature: 0,
        seed: 7,
        stop: ["END", "\n\n"],
        logit_bias: { 42: -5 },
        ignore_eos: true,
    });
    expect(body("", options)).not.toHaveProperty("top_k");
    expect(body("", options)).not.toHaveProperty("max_tokens");
});

it("names what is wrong before anything is sent", () => {
    const wrong = {
        ...defaults,
        numbers: { temperature: "-1", top_p: "2", top_k: "1.5", seed: "x" },
        maxTokens: "0",
        alternatives: "21",
        logitBias: "[1]",
    };
    const names = ["alternatives", "logit_bias", "max_tokens", "seed", "temperature", "top_k", "top_p"];
    expect(Object.keys(problems(wrong)).sort()).toEqual(names);
});
