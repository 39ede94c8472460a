/** Tools that the page runs by itself. What they compute is pure; they run in a worker that has no network. */

import type { ToolDeclaration } from "../settings/settings";
import { evaluate } from "./expression";

export interface Builtin {
    declaration: ToolDeclaration;
    /** In words, for the settings. */
    title: string;
    run: (given: Record<string, unknown>) => string;
}

const calculator: Builtin = {
    title: "Calculator",
    declaration: {
        name: "calculator",
        description:
            "Evaluates an arithmetic expression, such as 2 * (3 + 4)^2 or sqrt(2). Knows + - * / % ^ !, brackets, pi, e, abs, ceil, cos, exp, floor, ln, log, max, min, mod, pow, round, sin, sqrt, tan, factorial.",
        parameters: {
            type: "object",
            properties: { expression: { type: "string", description: "The expression" } },
            required: ["expression"],
            additionalProperties: false,
        },
    },
    run: ({ expression }) => {
        if (typeof expression !== "string") throw new Error("`expression` must be a string");
        return JSON.stringify({ result: number(evaluate(expression)) });
    },
};

/** Without the last digits of binary fractions: 0.1 + 0.2 is 0.3. */
function number(value: number): number | string {
    return Number.isFinite(value) ? Number(value.toPrecision(15)) : String(value);
}

const clock: Builtin = {
    title: "Clock",
    declaration: {
        name: "clock",
        description: "Tells the date and the time now, here or in another time zone.",
        parameters: {
            type: "object",
            properties: {
                time_zone: {
                    type: "string",
                    description: "IANA name, such as Europe/Zurich; absent: the person's own",
                },
            },
            additionalProperties: false,
        },
    },
    run: ({ time_zone }) => {
        const zone = typeof time_zone === "string" && time_zone ? time_zone : undefined;
        const now = new Date();
        const format = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long", timeZone: zone });
        return JSON.stringify({
            local: format.format(now),
            time_zone: format.resolvedOptions().timeZone,
            utc: now.toISOString(),
        });
    },
};

export const builtins: readonly Builtin[] = [calculator, clock];

export function builtin(name: string): Builtin | undefined {
    return builtins.find((tool) => tool.declaration.name === name);
}
