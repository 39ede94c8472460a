/** Conversations as files: JSON, which has all of them, and Markdown, which people can read. */

import { isSettings, plainSettings } from "../settings/settings";
import { db } from "./database";
import { newId } from "./ids";
import { fromMarkdown, toMarkdown } from "./markdown";
import { Tree } from "./tree";
import type { Conversation, Message, Part } from "./types";

const FORMAT = "bantam-conversations";
const VERSION = 1;

interface Archive {
    format: typeof FORMAT;
    version: number;
    conversations: { conversation: Conversation; messages: Message[] }[];
}

/** Why a file cannot be imported, in words for the person. */
export class ImportError extends Error {
    override name = "ImportError";
}

/** These conversations, or all, as JSON. */
export async function exportJson(ids?: readonly string[]): Promise<string> {
    const found = ids ? await db.conversations.bulkGet([...ids]) : await db.conversations.orderBy("updated").toArray();
    const conversations = await Promise.all(
        found
            .filter((one) => one !== undefined)
            .map(async (conversation) => ({
                conversation,
                messages: await db.messages.where({ conversation: conversation.id }).toArray(),
            })),
    );
    return JSON.stringify({ format: FORMAT, version: VERSION, conversations } satisfies Archive, null, 1);
}

/** The shown branch of a conversation as Markdown. */
export async function exportMarkdown(id: string): Promise<string> {
    const conversation = await db.conversations.get(id);
    if (!conversation) return "";
    const tree = new Tree(await db.messages.where({ conversation: id }).toArray());
    return toMarkdown(conversation, tree.path(conversation.leaf));
}

/** Adds the conversations of an exported file, under new names, so that none that is there is touched. Gives how many. */
export async function importText(text: string): Promise<number> {
    const markdown = fromMarkdown(text);
    const fresh = (markdown ? [markdown] : readArchive(text)).map(renamed);
    await db.transaction("rw", db.conversations, db.messages, async () => {
        await db.conversations.bulkAdd(fresh.map((one) => one.conversation));
        await db.messages.bulkAdd(fresh.flatMap((one) => one.messages));
    });
    return fresh.length;
}

type Entry = Archive["conversations"][number];

function readArchive(json: string): Entry[] {
    let given: unknown;
    try {
        given = JSON.parse(json);
    } catch {
        throw new ImportError("This file is neither JSON nor Markdown that was exported here. Choose one that was.");
    }
    if (!isObject(given) || given.format !== FORMAT || !Array.isArray(given.conversations)) {
        throw new ImportError("This file holds no conversations of this page. Choose one that was exported here.");
    }
    if (given.version !== VERSION) throw new ImportError("This file was written by a newer page. Reload this one.");
    return given.conversations.map((entry, index) => {
        const read = readEntry(entry);
        if (!read) throw new ImportError(`Conversation ${index + 1} of this file is damaged; nothing was imported.`);
        return read;
    });
}

function readEntry(entry: unknown): Entry | undefined {
    if (!isObject(entry) || !isObject(entry.conversation) || !Array.isArray(entry.messages)) return undefined;
    const { id, title, named, created, updated, leaf, settings } = entry.conversation;
    if (typeof id !== "string" || typeof title !== "string") return undefined;
    if (!entry.messages.every(isMessage)) return undefined;
    const now = Date.now();
    return {
        conversation: {
            id,
            title,
            named: named === true,
            created: typeof created === "number" ? created : now,
            updated: typeof updated === "number" ? updated : now,
            leaf: typeof leaf === "string" ? leaf : null,
            settings: isSettings(settings) ? settings : plainSettings,
        },
        messages: entry.messages,
    };
}

const ROLES = new Set(["user", "assistant", "tool"]);

function isMessage(value: unknown): value is Message {
    return (
        isObject(value) &&
        typeof value.id === "string" &&
        (value.parent === null || typeof value.parent === "string") &&
        typeof value.role === "string" &&
        ROLES.has(value.role) &&
        typeof value.at === "number" &&
        Array.isArray(value.parts) &&
        value.parts.every(isPart) &&
        (value.answer === undefined || isObject(value.answer))
    );
}

const FIELDS: Record<string, readonly string[]> = {
    text: ["text"],
    thinking: ["text"],
    call: ["id", "name", "arguments"],
    result: ["callId", "name", "content"],
    image: ["name", "url"],
    file: ["name", "text"],
};

function isPart(value: unknown): value is Part {
    if (!isObject(value) || typeof value.kind !== "string" || !Object.hasOwn(FIELDS, value.kind)) return false;
    if (value.kind === "image" && !String(value.url).startsWith("data:image/")) return false;
    return FIELDS[value.kind]?.every((field) => typeof value[field] === "string") ?? false;
}

/** The entry with names that nothing else has. */
function renamed({ conversation, messages }: Entry): Entry {
    const names = new Map(messages.map((message) => [message.id, newId()]));
    const id = newId();
    const name = (old: string | null) => (old === null ? null : (names.get(old) ?? null));
    return {
        conversation: { ...conversation, id, leaf: name(conversation.leaf) },
        messages: messages.map((message) => {
            const streaming = message.answer?.state === "streaming";
            return {
                ...message,
                id: names.get(message.id) ?? newId(),
                conversation: id,
                parent: name(message.parent),
                revision: 0,
                // Nobody receives what was under way when the file was written.
                ...(message.answer && streaming && { answer: { ...message.answer, state: "interrupted" as const } }),
            };
        }),
    };
}

function isObject(value: unknown): value is Record<string, unknown> {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
