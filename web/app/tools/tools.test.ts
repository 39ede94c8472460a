import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { builtin } from "./builtins";
import { readDeclarations } from "./declarations";
import { ExpressionError, evaluate } from "./expression";

describe("evaluate", () => {
    it.each([
        ["1 + 2 * 3", 7],
        ["(1 + 2) * 3", 9],
        ["2^3^2", 512],
        ["-2^2", -4],
        ["2 ** -1", 0.5],
        ["10 - 4 - 3", 3],
        ["7 % 4 * 2", 6],
        ["5! / 3!", 20],
        ["sqrt(16) + max(1, 2, 3)", 7],
        ["log(8, 2)", 3],
        ["round(2.345, 2)", 2.35],
        ["2 × 3 ÷ 4 − 1", 0.5],
        ["1.5e3 + .5", 1500.5],
        ["PI > 3", undefined],
        ["--1", 1],
    ])("%s", (source, value) => {
        if (value === undefined) expect(() => evaluate(source)).toThrow(ExpressionError);
        else expect(evaluate(source)).toBeCloseTo(value, 12);
    });

    it.each(["", "1 +", "(1", "1)", "two", "f(1)", "sqrt()", "1 2", "constructor", "toString(1)", "__proto__"])(
        "refuses %j",
        (source) => {
            expect(() => evaluate(source)).toThrow(ExpressionError);
        },
    );

    it("agrees with arithmetic on any tree of sums and products", () => {
        const { tree } = fc.letrec<{ tree: [string, number] }>((tie) => ({
            tree: fc.oneof(
                { maxDepth: 5 },
                fc.integer({ min: -50, max: 50 }).map((n): [string, number] => [n < 0 ? `(${n})` : `${n}`, n]),
                fc
                    .tuple(tie("tree"), fc.constantFrom("+", "-", "*"), tie("tree"))
                    .map(([[a, x], op, [b, y]]): [string, number] => [
                        `(${a} ${op} ${b})`,
                        op === "+" ? x + y : op === "-" ? x - y : x * y,
                    ]),
            ),
        }));
        fc.assert(
            fc.property(tree, ([source, value]) => {
                // Nought has two signs, and they are equal.
                expect(evaluate(source) + 0).toBe(value + 0);
            }),
        );
    });

    it("ends on any text, with a number or an error of its own", () => {
        const texts = fc
            .array(fc.constantFrom("(", ")", "-", "^", "1", "x", "sqrt(", ",", "!", " ", "e"))
            .map((a) => a.join(""));
        fc.assert(
            fc.property(texts, (source) => {
                try {
                    expect(evaluate(source)).toBeTypeOf("number");
                } catch (failure) {
                    expect(failure).toBeInstanceOf(ExpressionError);
                }
            }),
        );
        expect(() => evaluate("(".repeat(100_000))).toThrow("too many brackets");
        expect(() => evaluate("2^".repeat(100_000))).toThrow("too many powers");
    });
});

describe("built-in tools", () => {
    it("calculate without the dust of binary fractions", () => {
        expect(builtin("calculator")?.run({ expression: "0.1 + 0.2" })).toBe('{"result":0.3}');
        expect(builtin("calculator")?.run({ expression: "1 / 0" })).toBe('{"result":"Infinity"}');
        expect(() => builtin("calculator")?.run({})).toThrow("must be a string");
    });

    it("tell the time of a place, and refuse places that there are not", () => {
        expect(builtin("clock")?.run({ time_zone: "Europe/Zurich" })).toContain('"time_zone":"Europe/Zurich"');
        expect(() => builtin("clock")?.run({ time_zone: "Mars/Olympus" })).toThrow();
    });
});

describe("readDeclarations", () => {
    const parameters = { type: "object" };
    const tool = { name: "f", description: "d", parameters };

    it("takes the forms of all protocols", () => {
        for (const given of [
            tool,
            [tool],
            { type: "function", function: tool },
            { type: "function", ...tool },
            { name: "f", description: "d", input_schema: parameters },
        ]) {
            expect(readDeclarations(JSON.stringify(given))).toEqual({ tools: [tool] });
        }
        expect(readDeclarations(" ")).toEqual({ tools: [] });
    });

    it.each([
        ["{", /not JSON/],
        ["[5]", /Tool 1 must be an object/],
        ['{"name": "a b"}', /needs a `name`/],
        ['{"name": "f", "parameters": 3}', /JSON schema/],
        ['{"type": "web_search"}', /only functions/],
        ['[{"name": "f"}, {"name": "f"}]', /two tools/],
    ])("says what is wrong with %s", (json, problem) => {
        expect(readDeclarations(json)).toEqual({ problem: expect.stringMatching(problem) });
    });
});
