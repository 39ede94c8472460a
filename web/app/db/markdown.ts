/**
 * A conversation as Markdown: for people, and to be read back. A heading of its own begins each message, and each part of it but
 * text has a form of its own; what was said and would read as one of them has a backslash before it. What Markdown has no place for (speeds, other branches, settings beside
 * the system prompt) is in JSON alone.
 */

import { plainSettings } from "../settings/settings";
import { newId } from "./ids";
import type { CallPart, Conversation, Message, Part, ResultPart } from "./types";

const NAMES: Record<Message["role"], string> = { user: "You", assistant: "Answer", tool: "Results" };
const ROLES: Record<string, Message["role"]> = { You: "user", Answer: "assistant", Results: "tool" };

const HEADING = /^\\*## (?:System|You|Answer|Results)$/gm;
const HEADING_MASKED = /^\\(?=\\*## (?:System|You|Answer|Results)$)/gm;

/** How parts other than text begin; and where a part can: at the beginning, and behind an empty line. */
const START =
    "(?:(?:<details><summary>Thinking</summary>|Call of `[^`\\n]+`:|`[^`\\n]+` (?:gave|failed):|File: [^\\n]+)(?=\\n\\n|$)|!\\[)";
const PART = new RegExp(`(^\\n*|\\n\\n+)(\\\\*${START})`, "g");
const PART_MASKED = new RegExp(`(^\\n*|\\n\\n+)\\\\(?=\\\\*${START})`, "g");

const THOUGHT_END = /(^|\n\n)(\\*<\/details>)/g;
const THOUGHT_END_MASKED = /(^|\n\n)\\(?=\\*<\/details>)/g;

/** These messages of a conversation, in their order. */
export function toMarkdown(conversation: Conversation, path: readonly Message[]): string {
    const system = conversation.settings.system?.trim();
    const sections = [
        ...(system ? [section("System", system)] : []),
        ...path.map(({ role, parts }) => section(NAMES[role], parts.map(partMarkdown).filter(Boolean).join("\n\n"))),
    ];
    return `${[`# ${conversation.title}`, ...sections].join("\n\n")}\n`;
}

function section(name: string, body: string): string {
    return `## ${name}\n\n${body.replace(HEADING, "\\$&")}`;
}

function partMarkdown(part: Part): string {
    switch (part.kind) {
        case "text":
            return part.text.replace(PART, "$1\\$2");
        case "thinking":
            return `<details><summary>Thinking</summary>\n\n${part.text.replace(THOUGHT_END, "$1\\$2")}\n\n</details>`;
        case "call":
            return `Call of \`${part.name}\`:\n\n${fence(part.arguments, "json")}`;
        case "result":
            return `\`${part.name}\` ${part.failed ? "failed" : "gave"}:\n\n${fence(part.content)}`;
        case "image":
            return `![${part.name.replace(/[[\]\\]/g, "\\$&")}](${part.url})`;
        case "file":
            return `File: ${part.name}\n\n${fence(part.text)}`;
    }
}

/** A fence longer than any in the text. */
function fence(text: string, language = ""): string {
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
    const marks = "`".repeat(longest + 1);
    return `${marks}${language}\n${text}\n${marks}`;
}

/** The conversation that was written so; undefined for any other text. */
export function fromMarkdown(text: string): { conversation: Conversation; messages: Message[] } | undefined {
    const whole = text
        .replace(/^\uFEFF/, "")
        .replaceAll("\r\n", "\n")
        .replace(/\n$/, "");
    const [head = "", ...rest] = whole.split(/\n\n## (System|You|Answer|Results)(?:\n\n|$)/);
    const title = /^# (.+)$/.exec(head)?.[1];
    if (title === undefined) return undefined;
    const now = Date.now();
    const conversation: Conversation = {
        id: newId(),
        title,
        named: true,
        created: now,
        updated: now,
        leaf: null,
        settings: plainSettings,
    };
    const messages: Message[] = [];
    for (let at = 0; at < rest.length; at += 2) {
        const body = rest[at + 1]?.replace(HEADING_MASKED, "") ?? "";
        const role = ROLES[rest[at] ?? ""];
        if (role) messages.push(message(conversation, messages.at(-1), role, body, now + at));
        else conversation.settings = { ...plainSettings, system: body };
    }
    if (messages.length === 0) return undefined;
    conversation.leaf = messages.at(-1)?.id ?? null;
    return { conversation, messages };
}

function message(
    { id }: Conversation,
    before: Message | undefined,
    role: Message["role"],
    body: string,
    at: number,
): Message {
    const parts = readParts(body);
    if (role === "tool") nameCalls(parts, before?.parts ?? []);
    const answer = role === "assistant" && { answer: { state: "done" as const, protocol: "", model: "" } };
    return { id: newId(), conversation: id, parent: before?.id ?? null, role, at, revision: 0, parts, ...answer };
}

/** An empty line parts what follows each other. */
const GAP = 2;
const EMPTY_LINE = /\n\n+/g;

type Form = [RegExp, (found: RegExpExecArray) => Part];

const END = "(?=\\n\\n|$)";
const FENCED = `\\n\\n(\`{3,})(?:json)?\\n([\\s\\S]*?)\\n\\2${END}`;

/** What stands for each kind of part but text, and what it is read as. */
const forms: readonly Form[] = [
    [
        new RegExp(`<details><summary>Thinking</summary>\\n\\n([\\s\\S]*?)\\n\\n</details>${END}`, "y"),
        ([, text = ""]) => ({ kind: "thinking", text: text.replace(THOUGHT_END_MASKED, "$1") }),
    ],
    [
        new RegExp(`Call of \`([^\`\\n]+)\`:${FENCED}`, "y"),
        ([, name = "", , given = ""]) => ({ kind: "call", id: newId(), name, arguments: given }),
    ],
    [
        new RegExp(`\`([^\`\\n]+)\` gave:${FENCED}`, "y"),
        ([, name = "", , content = ""]) => ({ kind: "result", callId: newId(), name, content }),
    ],
    [
        new RegExp(`\`([^\`\\n]+)\` failed:${FENCED}`, "y"),
        ([, name = "", , content = ""]) => ({ kind: "result", callId: newId(), name, content, failed: true }),
    ],
    [
        new RegExp(`File: ([^\\n]+)${FENCED}`, "y"),
        ([, name = "", , text = ""]) => ({ kind: "file", name, size: new Blob([text]).size, text }),
    ],
    [
        new RegExp(`!\\[((?:[^\\]\\\\\\n]|\\\\.)*)\\]\\((data:image/[^)\\s]+)\\)${END}`, "y"),
        ([, name = "", url = ""]) => ({ kind: "image", name: name.replace(/\\(.)/g, "$1"), url }),
    ],
];

/** The parts of a message. What is of no other form is text. */
function readParts(body: string): Part[] {
    const parts: Part[] = [];
    let from = 0;
    const words = (to: number) => {
        if (to > from) parts.push({ kind: "text", text: body.slice(from, to).replace(PART_MASKED, "$1") });
    };
    for (let at = 0; at < body.length; ) {
        const found = formAt(body, at);
        if (found) {
            words(at - GAP);
            parts.push(found.part);
            from = found.end + GAP;
            at = from;
        } else {
            at = nextStart(body, at);
        }
    }
    words(body.length);
    return parts;
}

/** Behind the next empty line, or the end. */
function nextStart(body: string, at: number): number {
    EMPTY_LINE.lastIndex = at;
    return EMPTY_LINE.test(body) ? EMPTY_LINE.lastIndex : body.length;
}

function formAt(body: string, at: number): { part: Part; end: number } | undefined {
    for (const [form, read] of forms) {
        form.lastIndex = at;
        const found = form.exec(body);
        if (found) return { part: read(found), end: at + found[0].length };
    }
    return undefined;
}

/** Results tell no ids of calls: each belongs to the first call of its tool that has none yet. */
function nameCalls(results: Part[], before: readonly Part[]): void {
    const open = before.filter((part): part is CallPart => part.kind === "call");
    for (const result of results.filter((part): part is ResultPart => part.kind === "result")) {
        const at = open.findIndex(({ name }) => name === result.name);
        if (at >= 0) result.callId = open.splice(at, 1)[0]?.id ?? result.callId;
    }
}
