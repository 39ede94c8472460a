import { beforeEach, describe, expect, it } from "vitest";
import { plainSettings } from "../settings/settings";
import {
    addMessage,
    changeMessage,
    createConversation,
    deleteBranch,
    deleteConversations,
    endAnswer,
    messagesOf,
    rename,
    search,
    showBranch,
} from "./conversations";
import { db } from "./database";
import { titleFrom } from "./text";
import { Tree } from "./tree";
import type { Part } from "./types";

beforeEach(async () => {
    await Promise.all(db.tables.map((table) => table.clear()));
});

const said = (text: string): Part[] => [{ kind: "text", text }];

async function conversation(...texts: string[]) {
    const made = await createConversation(plainSettings, said(texts[0] ?? ""));
    let parent: string | null = null;
    for (const [index, text] of texts.entries()) {
        const role = index % 2 === 0 ? "user" : "assistant";
        parent = (await addMessage({ conversation: made.id, parent, role, parts: said(text) })).id;
    }
    return made.id;
}

async function shown(id: string): Promise<string[]> {
    const path = new Tree(await messagesOf(id)).path((await db.conversations.get(id))?.leaf ?? null);
    return path.map(({ parts }) => (parts[0]?.kind === "text" ? parts[0].text : ""));
}

describe("conversations", () => {
    it("show the branch that was added to last, and another when asked", async () => {
        const id = await conversation("q", "a1");
        const [question, first] = await messagesOf(id).then((all) => all.sort((a, b) => a.at - b.at));
        await addMessage({ conversation: id, parent: question?.id ?? null, role: "assistant", parts: said("a2") });
        expect(await shown(id)).toEqual(["q", "a2"]);
        await showBranch(id, first?.id ?? "");
        expect(await shown(id)).toEqual(["q", "a1"]);
    });

    it("count the changes of a message", async () => {
        const id = await conversation("q");
        const [message] = await messagesOf(id);
        await changeMessage(message?.id ?? "", { parts: said("r") });
        expect((await messagesOf(id))[0]).toMatchObject({ revision: 1, parts: said("r") });
    });

    it("keep an answer once when it ends", async () => {
        const id = await conversation("q", "");
        const answer = (await messagesOf(id)).find((one) => one.role === "assistant");
        if (!answer) throw new Error("no answer");
        const info = { state: "streaming" as const, protocol: "chat", model: "m" };
        await db.partials.put({ id: answer.id, conversation: id, tab: "t", at: 0, parts: said("par"), answer: info });
        await endAnswer(answer.id, said("partial"), { ...info, state: "done" });
        expect(await db.partials.count()).toBe(0);
        expect(await db.messages.get(answer.id)).toMatchObject({ parts: said("partial"), answer: { state: "done" } });
    });

    it("come back as they were after a deletion is undone", async () => {
        const ids = [await conversation("one", "a"), await conversation("two")];
        const before = await Promise.all(ids.map(shown));
        const undo = await deleteConversations(ids);
        expect([await db.conversations.count(), await db.messages.count()]).toEqual([0, 0]);
        await undo();
        expect(await Promise.all(ids.map(shown))).toEqual(before);
    });

    it("show what is left when a branch is deleted, and the branch when that is undone", async () => {
        const id = await conversation("q", "a", "q2", "a2");
        const second = (await messagesOf(id)).find((one) =>
            one.parts.some((p) => p.kind === "text" && p.text === "q2"),
        );
        if (!second) throw new Error("no message");
        const undo = await deleteBranch(second);
        expect(await shown(id)).toEqual(["q", "a"]);
        await undo();
        expect(await shown(id)).toEqual(["q", "a", "q2", "a2"]);
    });

    it("are found by all words of a search, in titles and in messages", async () => {
        const one = await conversation("About hens", "They lay EGGS");
        const two = await conversation("About roosters");
        await rename(two, "  Crowing  ");
        const found = async (query: string) => (await search(query)).map((one) => one.id);
        expect(await found("eggs hens")).toEqual([one]);
        expect(await found("crow")).toEqual([two]);
        expect(await found("about")).toEqual([two, one]);
        expect(await found("about eggs roosters")).toEqual([]);
        expect(await found(" ")).toHaveLength(2);
    });
});

describe("titleFrom", () => {
    it("is the first words, cut between two of them", () => {
        expect(titleFrom(said("  a\n b "))).toBe("a b");
        const long = titleFrom(said("word ".repeat(40)));
        expect(long).toMatch(/^(word )+word…$/);
        expect(long.length).toBeLessThanOrEqual(61);
        expect(titleFrom([{ kind: "file", name: "a.pdf", size: 1, text: "x" }])).toBe("a.pdf");
        expect(titleFrom([])).toBe("New chat");
    });
});
