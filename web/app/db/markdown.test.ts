import * as fc from "fast-check";
import { expect, it } from "vitest";
import { plainSettings } from "../settings/settings";
import { fromMarkdown, toMarkdown } from "./markdown";
import type { Conversation, Message, Part } from "./types";

const conversation: Conversation = {
    id: "c",
    title: "Title",
    named: true,
    created: 0,
    updated: 0,
    leaf: null,
    settings: { ...plainSettings, system: "Be brief." },
};

/** What looks like the marks of the form itself, alone and beside other text. */
const line = fc.oneof(
    fc.constantFrom("", "", "## You", "\\## Answer", "## Results", "# Title", "```", "````", "```json", "    code"),
    fc.constantFrom(
        "File: x",
        "\\File: x",
        "Call of `f`:",
        "`f` gave:",
        "\\`f` failed:",
        "![p](data:image/png;base64,AA)",
    ),
    fc.constantFrom("<details><summary>Thinking</summary>", "</details>", "\\</details>"),
    fc.string().map((text) => text.replace(/[\r\n]/g, "")),
);
const text = fc.array(line, { minLength: 1, maxLength: 9 }).map((lines) => lines.join("\n"));
const name = fc.stringMatching(/^[\w.-]{1,8}$/);

const parts: fc.Arbitrary<Part> = fc.oneof(
    text.map((text): Part => ({ kind: "text", text })),
    text.map((text): Part => ({ kind: "thinking", text })),
    fc.tuple(name, text).map(([name, given]): Part => ({ kind: "call", id: "", name, arguments: given })),
    fc.tuple(name, text).map(([name, text]): Part => ({ kind: "file", name, size: 0, text })),
    fc.tuple(name, text, fc.boolean()).map(([name, content, failed]): Part => {
        return { kind: "result", callId: "", name, content, ...(failed && { failed }) };
    }),
    fc.string().map((name): Part => {
        return { kind: "image", name: name.replace(/[\r\n]/g, ""), url: "data:image/png;base64,AA==" };
    }),
);

/** Neighbouring texts are one, and what Markdown does not tell is left out. */
function plain(parts: readonly Part[]): unknown[] {
    const all: Part[] = [];
    for (const part of parts) {
        const last = all.at(-1);
        if (part.kind === "text" && part.text === "") continue;
        if (part.kind === "text" && last?.kind === "text") {
            all[all.length - 1] = { kind: "text", text: `${last.text}\n\n${part.text}` };
        } else all.push(part);
    }
    return all.map((part) => ({ ...part, id: "", callId: "", size: 0 }));
}

it("reads back whatever was said, thought, called and attached", () => {
    const message = fc.tuple(fc.constantFrom("user", "assistant", "tool"), fc.array(parts, { maxLength: 4 }));
    fc.assert(
        fc.property(fc.array(message, { minLength: 1, maxLength: 3 }), (said) => {
            const path = said.map(
                ([role, parts]) =>
                    ({ id: "", conversation: "c", parent: null, at: 0, revision: 0, role, parts }) as Message,
            );
            const read = fromMarkdown(toMarkdown(conversation, path));
            expect(read?.conversation).toMatchObject({ title: "Title", settings: conversation.settings });
            expect(read?.messages.map(({ role, parts }) => [role, plain(parts)])).toEqual(
                said.map(([role, parts]) => [role, plain(parts)]),
            );
        }),
        { numRuns: 500 },
    );
});
