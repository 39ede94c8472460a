/** What is done to conversations. Each function is one transaction, so that tabs do not see halves. */

import type { Settings } from "../settings/settings";
import { db } from "./database";
import { newId } from "./ids";
import { searchable, titleFrom } from "./text";
import { Tree } from "./tree";
import type { AnswerInfo, Conversation, Message, Part } from "./types";

export async function createConversation(settings: Settings, first: readonly Part[]): Promise<Conversation> {
    const now = Date.now();
    const conversation: Conversation = {
        id: newId(),
        title: titleFrom(first),
        named: false,
        created: now,
        updated: now,
        leaf: null,
        settings,
    };
    await db.conversations.add(conversation);
    return conversation;
}

interface NewMessage {
    conversation: string;
    parent: string | null;
    role: Message["role"];
    parts: Part[];
    answer?: AnswerInfo;
}

let lastAt = 0;

/** Adds a message and shows the branch that it ends. */
export async function addMessage(given: NewMessage): Promise<Message> {
    // Two messages of one millisecond keep their order.
    lastAt = Math.max(Date.now(), lastAt + 1);
    const message: Message = { ...given, id: newId(), at: lastAt, revision: 0 };
    await db.transaction("rw", db.conversations, db.messages, async () => {
        await db.messages.add(message);
        await db.conversations.update(given.conversation, { leaf: message.id, updated: message.at });
    });
    return message;
}

export async function changeMessage(id: string, change: Partial<Pick<Message, "parts" | "answer">>): Promise<void> {
    await db.transaction("rw", db.messages, async () => {
        const message = await db.messages.get(id);
        if (message) await db.messages.put({ ...message, ...change, revision: message.revision + 1 });
    });
}

/** Ends an answer: what there is of it becomes the message. */
export async function endAnswer(id: string, parts: Part[], answer: AnswerInfo): Promise<void> {
    await db.transaction("rw", db.messages, db.partials, async () => {
        await changeMessage(id, { parts, answer });
        await db.partials.delete(id);
    });
}

/** Shows the newest branch below this message. */
export async function showBranch(conversation: string, message: string): Promise<void> {
    await db.transaction("rw", db.conversations, db.messages, async () => {
        const tree = new Tree(await messagesOf(conversation));
        await db.conversations.update(conversation, { leaf: tree.leafUnder(message) });
    });
}

export function messagesOf(conversation: string): Promise<Message[]> {
    return db.messages.where({ conversation }).toArray();
}

export async function rename(id: string, title: string): Promise<void> {
    const given = title.trim();
    if (given) await db.conversations.update(id, { title: given, named: true });
}

export async function changeSettings(id: string, settings: Settings): Promise<void> {
    await db.conversations.update(id, { settings });
}

/** Deletes conversations and gives what takes that back. */
export async function deleteConversations(ids: readonly string[]): Promise<() => Promise<void>> {
    return db.transaction("rw", db.conversations, db.messages, db.partials, async () => {
        const conversations = (await db.conversations.bulkGet([...ids])).filter((found) => found !== undefined);
        const ofThem = () => db.messages.where("conversation").anyOf(ids);
        const messages = await ofThem().toArray();
        await db.conversations.bulkDelete([...ids]);
        await ofThem().delete();
        await db.partials.where("conversation").anyOf(ids).delete();
        return () => restore(conversations, messages);
    });
}

/** Deletes a message and all that follows it, and gives what takes that back. */
export async function deleteBranch(message: Message): Promise<() => Promise<void>> {
    return db.transaction("rw", db.conversations, db.messages, db.partials, async () => {
        const tree = new Tree(await messagesOf(message.conversation));
        const gone = [message];
        for (const one of gone) gone.push(...tree.children(one.id));
        const before = await db.conversations.get(message.conversation);
        await db.messages.bulkDelete(gone.map((one) => one.id));
        const left = new Tree(await messagesOf(message.conversation));
        const sibling = tree.siblings(message).findLast((one) => one.id !== message.id);
        const leaf = left.leafUnder(sibling?.id ?? message.parent);
        await db.conversations.update(message.conversation, { leaf });
        return () => restore(before ? [before] : [], gone);
    });
}

export async function restore(conversations: readonly Conversation[], messages: readonly Message[]): Promise<void> {
    await db.transaction("rw", db.conversations, db.messages, async () => {
        await db.conversations.bulkPut([...conversations]);
        await db.messages.bulkPut([...messages]);
    });
}

/** Conversations that have all of these words in their title or their messages, newest first. */
export async function search(query: string): Promise<Conversation[]> {
    const all = await db.conversations.orderBy("updated").reverse().toArray();
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return all;
    const left = new Map(all.map((one) => [one.id, words.filter((word) => !one.title.toLowerCase().includes(word))]));
    await db.messages.each((message) => {
        const missing = left.get(message.conversation);
        if (!missing || missing.length === 0) return;
        const text = searchable(message).toLowerCase();
        left.set(
            message.conversation,
            missing.filter((word) => !text.includes(word)),
        );
    });
    return all.filter((one) => left.get(one.id)?.length === 0);
}
