import { beforeEach, describe, expect, it } from "vitest";
import { plainSettings } from "../settings/settings";
import { addMessage, createConversation, messagesOf, restore } from "./conversations";
import { db } from "./database";
import { exportJson, exportMarkdown, ImportError, importText } from "./transfer";
import { Tree } from "./tree";
import type { Part } from "./types";

beforeEach(async () => {
    await Promise.all(db.tables.map((table) => table.clear()));
});

const question: Part[] = [
    { kind: "file", name: "a.txt", size: 4, text: "```in```", tokens: 2 },
    { kind: "image", name: "p.png", url: "data:image/png;base64,AA==" },
    { kind: "text", text: "What?" },
];
const answer: Part[] = [
    { kind: "thinking", text: "Hm.", ms: 12 },
    { kind: "call", id: "c1", name: "f", arguments: "{}" },
];
const results: Part[] = [{ kind: "result", callId: "c1", name: "f", content: "42", failed: false }];

async function made(): Promise<string> {
    const { id } = await createConversation({ ...plainSettings, system: "Be brief." }, question);
    const first = await addMessage({ conversation: id, parent: null, role: "user", parts: question });
    const info = { state: "done" as const, protocol: "chat", model: "m" };
    const second = await addMessage({
        conversation: id,
        parent: first.id,
        role: "assistant",
        parts: answer,
        answer: info,
    });
    await addMessage({
        conversation: id,
        parent: first.id,
        role: "assistant",
        parts: [{ kind: "text", text: "Other" }],
    });
    await addMessage({ conversation: id, parent: second.id, role: "tool", parts: results });
    return id;
}

/** A conversation without its names and times. */
async function content(id: string) {
    const conversation = await db.conversations.get(id);
    const tree = new Tree(await messagesOf(id));
    const below = (parent: string | null): unknown[] =>
        tree.children(parent).map(({ id, role, parts, answer }) => ({ role, parts, answer, below: below(id) }));
    const { title, named, settings } = conversation ?? {};
    const shown = tree.path(conversation?.leaf ?? null).map((one) => one.parts);
    return { title, named, settings, shown, tree: below(null) };
}

describe("JSON", () => {
    it("brings back what was exported, beside what is there", async () => {
        const id = await made();
        const before = await content(id);
        expect(await importText(await exportJson())).toBe(1);
        const ids = (await db.conversations.toArray()).map((one) => one.id);
        expect(ids).toHaveLength(2);
        for (const one of ids) expect(await content(one)).toEqual(before);
    });

    it("brings back one of several into an empty browser", async () => {
        const id = await made();
        const before = await content(id);
        await made();
        const json = await exportJson([id]);
        await Promise.all(db.tables.map((table) => table.clear()));
        expect(await importText(json)).toBe(1);
        expect(await content((await db.conversations.toArray())[0]?.id ?? "")).toEqual(before);
    });

    it("marks what was under way when the file was written", async () => {
        const id = await made();
        const [message] = await messagesOf(id);
        if (!message) throw new Error("no message");
        await restore([], [{ ...message, answer: { state: "streaming", protocol: "chat", model: "m" } }]);
        await importText(await exportJson());
        const states = (await db.messages.toArray())
            .filter((one) => one.conversation !== id)
            .map((o) => o.answer?.state);
        expect(states).toContain("interrupted");
        expect(states).not.toContain("streaming");
    });

    it("refuses what it does not know, and imports nothing of it", async () => {
        await made();
        const good = JSON.parse(await exportJson());
        const with_ = (change: (archive: typeof good) => void) => {
            const archive = structuredClone(good);
            change(archive);
            return JSON.stringify(archive);
        };
        const before = await db.messages.count();
        for (const bad of [
            "no",
            "[]",
            "{}",
            with_((a) => (a.version = 2)),
            with_((a) => (a.conversations[0].messages[0].role = "robot")),
            with_((a) => (a.conversations[0].messages[0].parts = [{ kind: "text" }])),
            with_((a) => (a.conversations[0].messages[0].parts = [{ kind: "image", name: "x", url: "http://x" }])),
            with_((a) => (a.conversations[0].messages = 5)),
        ]) {
            await expect(importText(bad)).rejects.toThrow(ImportError);
        }
        expect(await db.messages.count()).toBe(before);
    });
});

describe("Markdown", () => {
    it("tells the shown branch, with fences that what is in them cannot end", async () => {
        const text = await exportMarkdown(await made());
        expect(text).toContain("# What?\n\n## System\n\nBe brief.\n\n## You\n\nFile: a.txt\n\n````\n```in```\n````");
        expect(text).toContain("![p.png](data:image/png;base64,AA==)");
        expect(text).toContain("<summary>Thinking</summary>\n\nHm.");
        expect(text).toContain("Call of `f`:\n\n```json\n{}\n```");
        expect(text).toContain("`f` gave:\n\n```\n42\n```");
        expect(text).not.toContain("Other");
    });

    it("is read back, with thoughts, calls, results and files", async () => {
        const id = await made();
        const before = await content(id);
        const text = await exportMarkdown(id);
        await Promise.all(db.tables.map((table) => table.clear()));
        expect(await importText(text.replaceAll("\n", "\r\n"))).toBe(1);
        const after = await content((await db.conversations.toArray())[0]?.id ?? "");
        expect(after.title).toBe(before.title);
        expect(after.settings).toEqual(before.settings);
        const shown = after.shown.flat();
        const call = shown.find((part) => part.kind === "call");
        // Only what Markdown does not tell is another: how long was thought, names, how many tokens a file has.
        expect(shown).toEqual([
            { kind: "file", name: "a.txt", size: 8, text: "```in```" },
            question[1],
            question[2],
            { kind: "thinking", text: "Hm." },
            { kind: "call", id: call?.kind === "call" && call.id, name: "f", arguments: "{}" },
            { kind: "result", callId: call?.kind === "call" && call.id, name: "f", content: "42" },
        ]);
        expect(await importText(await exportMarkdown((await db.conversations.toArray())[0]?.id ?? ""))).toBe(1);
    });

    it("is not taken for a conversation where it is none", async () => {
        for (const none of ["", "# Title", "Some words.\n\n## You\n\nHello", "# Title\n\n## System\n\nBe brief."]) {
            await expect(importText(none)).rejects.toThrow(ImportError);
        }
    });
});
