/** Every setting of sampling, length and thinking, one row each: the form, the requests and the help are made of them. */

import type { Props } from "../api/props";
import type { KnobValue, ProtocolName } from "./settings";

interface Common {
    /** As `/v1/chat/completions` calls it, unless a protocol has its own name or place for it. */
    name: string;
    label: string;
    hint: string;
    group: "Sampling" | "Penalties" | "Length" | "Thinking" | "Tools" | "Server";
    /** Protocols that have it. */
    protocols: readonly ProtocolName[];
    /** What the server does where a request says nothing, in words, and why. */
    serverDefault?: (props: Props) => { value: string; from?: string } | undefined;
}

export type Knob =
    | (Common & { kind: "number"; min?: number; max?: number; step: number; whole?: boolean })
    | (Common & { kind: "choice"; choices: (props: Props | undefined) => readonly string[] })
    | (Common & { kind: "flag" })
    | (Common & { kind: "texts" })
    | (Common & { kind: "json" });

const every: readonly ProtocolName[] = ["chat", "responses", "messages"];
const openai: readonly ProtocolName[] = ["chat", "responses"];

/** The default of a sampling option as `/props` tells it. */
function told(name: string): Common["serverDefault"] {
    return (props) => {
        const option = props.sampling[name];
        return option && { value: option.value === null ? "none" : String(option.value), from: option.from };
    };
}

export const knobs: readonly Knob[] = [
    {
        name: "temperature",
        label: "Temperature",
        hint: "Spread of the choice; 0 always takes the likeliest token.",
        group: "Sampling",
        protocols: every,
        kind: "number",
        min: 0,
        step: 0.05,
        serverDefault: told("temperature"),
    },
    {
        name: "top_p",
        label: "Top-p",
        hint: "Choose among the likeliest that together have this probability.",
        group: "Sampling",
        protocols: every,
        kind: "number",
        min: 0,
        max: 1,
        step: 0.01,
        serverDefault: told("top_p"),
    },
    {
        name: "top_k",
        label: "Top-k",
        hint: "Choose among this many of the likeliest; 0 takes all.",
        group: "Sampling",
        protocols: every,
        kind: "number",
        min: 0,
        step: 1,
        whole: true,
        serverDefault: told("top_k"),
    },
    {
        name: "min_p",
        label: "Min-p",
        hint: "Leave out what is less than this part as likely as the likeliest.",
        group: "Sampling",
        protocols: openai,
        kind: "number",
        min: 0,
        max: 1,
        step: 0.01,
        serverDefault: told("min_p"),
    },
    {
        name: "seed",
        label: "Seed",
        hint: "The same seed gives the same answer.",
        group: "Sampling",
        protocols: openai,
        kind: "number",
        step: 1,
        whole: true,
        serverDefault: told("seed"),
    },
    {
        name: "logit_bias",
        label: "Logit bias",
        hint: 'Added to the scores of tokens, by id: {"42": -5}',
        group: "Sampling",
        protocols: openai,
        kind: "json",
    },
    {
        name: "repetition_penalty",
        label: "Repetition penalty",
        hint: "Divides the scores of tokens that were there; 1 does not.",
        group: "Penalties",
        protocols: openai,
        kind: "number",
        min: 0,
        step: 0.05,
        serverDefault: told("repetition_penalty"),
    },
    {
        name: "presence_penalty",
        label: "Presence penalty",
        hint: "Taken from the scores of tokens that were there.",
        group: "Penalties",
        protocols: openai,
        kind: "number",
        step: 0.1,
        serverDefault: told("presence_penalty"),
    },
    {
        name: "frequency_penalty",
        label: "Frequency penalty",
        hint: "Taken for each time that a token was there.",
        group: "Penalties",
        protocols: openai,
        kind: "number",
        step: 0.1,
        serverDefault: told("frequency_penalty"),
    },
    {
        name: "penalty_window",
        label: "Penalty window",
        hint: "Tokens that the penalties look back on.",
        group: "Penalties",
        protocols: openai,
        kind: "number",
        min: 0,
        step: 1,
        whole: true,
        serverDefault: told("penalty_window"),
    },
    {
        name: "max_tokens",
        label: "Longest answer",
        hint: "Tokens, thinking included.",
        group: "Length",
        protocols: every,
        kind: "number",
        min: 1,
        step: 1,
        whole: true,
        serverDefault: (props) => ({ value: String(props.max_tokens) }),
    },
    {
        name: "stop",
        label: "Stop texts",
        hint: "One a line; the answer ends before the first that it would have.",
        group: "Length",
        protocols: every,
        kind: "texts",
    },
    {
        name: "ignore_eos",
        label: "Ignore the end",
        hint: "Go on to the longest answer even where the model would end.",
        group: "Length",
        protocols: openai,
        kind: "flag",
    },
    {
        name: "reasoning_effort",
        label: "Effort",
        hint: "How much the model is to think.",
        group: "Thinking",
        protocols: every,
        kind: "choice",
        choices: (props) =>
            props?.reasoning_efforts?.length ? props.reasoning_efforts : ["none", "low", "medium", "high"],
        serverDefault: (props) => ({ value: props.reasoning_effort ?? "the model's own" }),
    },
    {
        name: "reasoning_budget_tokens",
        label: "Thinking budget",
        hint: "Most tokens of thinking; at the limit the model answers.",
        group: "Thinking",
        protocols: every,
        kind: "number",
        min: 0,
        step: 1,
        whole: true,
        serverDefault: (props) => ({ value: props.thinking_budget == null ? "none" : String(props.thinking_budget) }),
    },
    {
        name: "chat_template_kwargs",
        label: "Template variables",
        hint: 'Given to the chat template: {"enable_thinking": false}',
        group: "Thinking",
        protocols: ["chat"],
        kind: "json",
    },
    {
        name: "tool_choice",
        label: "Use of tools",
        hint: "Whether the model may, must or must not call a tool.",
        group: "Tools",
        protocols: every,
        kind: "choice",
        choices: () => ["auto", "required", "none"],
        serverDefault: () => ({ value: "auto" }),
    },
    {
        name: "parallel_tool_calls",
        label: "Several calls at once",
        hint: "Whether one answer may call several tools.",
        group: "Tools",
        protocols: every,
        kind: "choice",
        choices: () => ["yes", "no"],
        serverDefault: () => ({ value: "yes" }),
    },
    {
        name: "priority",
        label: "Priority",
        hint: "The lower number goes first when the server is busy.",
        group: "Server",
        protocols: openai,
        kind: "number",
        step: 1,
        whole: true,
        serverDefault: () => ({ value: "0" }),
    },
    {
        name: "deadline_ms",
        label: "Deadline, ms",
        hint: "When nobody wants the answer any more.",
        group: "Server",
        protocols: openai,
        kind: "number",
        min: 1,
        step: 1,
        whole: true,
        serverDefault: () => ({ value: "none" }),
    },
];

/** What is wrong with a value; undefined if nothing is. */
export function problem(knob: Knob, value: KnobValue): string | undefined {
    if (knob.kind !== "number") return undefined;
    if (typeof value !== "number" || !Number.isFinite(value)) return "This must be a number.";
    if (knob.whole && !Number.isInteger(value)) return "This must be a whole number.";
    if (knob.min !== undefined && value < knob.min) return `This must be at least ${knob.min}.`;
    if (knob.max !== undefined && value > knob.max) return `This must be at most ${knob.max}.`;
    return undefined;
}
