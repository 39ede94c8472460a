/** What of a completion can be chosen, and the request that it becomes. */

export interface Knob {
    name: string;
    label: string;
    hint: string;
    min?: number;
    max?: number;
    step: number;
}

/** The numbers, as the server names them. */
export const knobs: readonly Knob[] = [
    {
        name: "temperature",
        label: "Temperature",
        hint: "spread of the choice; 0: always the likeliest",
        min: 0,
        step: 0.05,
    },
    { name: "top_k", label: "Top k", hint: "choose among so many; 0: all", min: 0, step: 1 },
    {
        name: "top_p",
        label: "Top p",
        hint: "among those that together have this probability",
        min: 0,
        max: 1,
        step: 0.01,
    },
    {
        name: "min_p",
        label: "Min p",
        hint: "among those at least so likely beside the likeliest",
        min: 0,
        max: 1,
        step: 0.01,
    },
    { name: "repetition_penalty", label: "Repetition penalty", hint: "1: none", min: 0, step: 0.01 },
    {
        name: "presence_penalty",
        label: "Presence penalty",
        hint: "for tokens that were there",
        min: -2,
        max: 2,
        step: 0.1,
    },
    {
        name: "frequency_penalty",
        label: "Frequency penalty",
        hint: "for each time it was there",
        min: -2,
        max: 2,
        step: 0.1,
    },
    { name: "penalty_window", label: "Penalty window", hint: "tokens that penalties look back on", min: 0, step: 1 },
    { name: "seed", label: "Seed", hint: "the same seed gives the same answer", step: 1 },
];

/** What was typed; an empty text leaves the choice to the server. */
export interface Options {
    numbers: Record<string, string>;
    maxTokens: string;
    /** Alternatives that are told of each token. */
    alternatives: string;
    /** One a line. */
    stop: string;
    logitBias: string;
    ignoreEos: boolean;
}

export const defaults: Options = {
    numbers: {},
    maxTokens: "128",
    alternatives: "8",
    stop: "",
    logitBias: "",
    ignoreEos: false,
};

export type Problems = Record<string, string>;

/** What is wrong with what was typed, by the field's name. */
export function problems(options: Options): Problems {
    const found: Problems = {};
    const check = (name: string, text: string, min?: number, max?: number, whole?: boolean) => {
        if (text.trim() === "") return;
        const value = Number(text);
        if (!Number.isFinite(value) || (whole && !Number.isInteger(value)))
            found[name] = whole ? "A whole number." : "A number.";
        else if ((min !== undefined && value < min) || (max !== undefined && value > max)) {
            found[name] = max === undefined ? `At least ${min}.` : `From ${min} to ${max}.`;
        }
    };
    for (const { name, min, max, step } of knobs) check(name, options.numbers[name] ?? "", min, max, step === 1);
    check("max_tokens", options.maxTokens, 1, undefined, true);
    check("alternatives", options.alternatives, 0, 20, true);
    if (options.logitBias.trim() && !isObject(options.logitBias))
        found.logit_bias = 'A JSON object such as {"42": -5}.';
    return found;
}

function isObject(text: string): boolean {
    try {
        const value: unknown = JSON.parse(text);
        return typeof value === "object" && value !== null && !Array.isArray(value);
    } catch {
        return false;
    }
}

/** The body of the request. Call it where there are no problems. */
export function body(prompt: string, options: Options): Record<string, unknown> {
    const asked: Record<string, unknown> = { prompt, stream: true, stream_options: { include_usage: true } };
    const number = (name: string, text: string) => {
        if (text.trim() !== "") asked[name] = Number(text);
    };
    number("max_tokens", options.maxTokens);
    asked.logprobs = Number(options.alternatives) || 0;
    for (const { name } of knobs) number(name, options.numbers[name] ?? "");
    const stop = options.stop.split("\n").filter((line) => line !== "");
    if (stop.length > 0) asked.stop = stop.map((line) => line.replaceAll("\\n", "\n"));
    if (options.logitBias.trim()) asked.logit_bias = JSON.parse(options.logitBias);
    if (options.ignoreEos) asked.ignore_eos = true;
    return asked;
}
