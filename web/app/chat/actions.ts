/** What a person does in a conversation. */

import { server } from "../api/server";
import {
    addMessage,
    changeMessage,
    createConversation,
    deleteBranch,
    messagesOf,
    showBranch,
} from "../db/conversations";
import { db } from "../db/database";
import { Tree } from "../db/tree";
import type { AnswerInfo, CallPart, Message, Part, ResultPart } from "../db/types";
import { protocols } from "../protocols";
import { continuation } from "../protocols/continuation";
import type { Ask } from "../protocols/types";
import type { Settings } from "../settings/settings";
import { runBuiltin, runsHere, toolsOf } from "../tools/run";
import { toast } from "../ui/toasts";
import { type Outgoing, startRun } from "./runs";

/** Rounds of calls that the page runs by itself before a person has to agree. */
const ROUNDS = 10;

function ask(path: readonly Message[], settings: Settings): Ask {
    return { path, settings, tools: toolsOf(settings), props: server.get().props };
}

function outgoing(ask: Ask): Outgoing {
    const { path, headers, body, reader } = protocols[ask.settings.protocol];
    return { path, headers, body: body(ask), reader: reader() };
}

function beginning(settings: Settings): AnswerInfo {
    return {
        state: "streaming",
        protocol: settings.protocol,
        model: server.get().props?.model.title ?? server.get().props?.model.name ?? "",
        ...(settings.schema && { schema: settings.schema }),
    };
}

interface Loaded {
    settings: Settings;
    tree: Tree;
}

async function load(conversation: string): Promise<Loaded | undefined> {
    const found = await db.conversations.get(conversation);
    if (!found) return undefined;
    return { settings: found.settings, tree: new Tree(await messagesOf(conversation)) };
}

/** Begins a conversation with this message. Gives its id. */
export async function startConversation(settings: Settings, parts: Part[]): Promise<string> {
    const conversation = await createConversation(settings, parts);
    await say(conversation.id, null, parts);
    return conversation.id;
}

/** Says something after `parent`, and has it answered. */
export async function say(conversation: string, parent: string | null, parts: Part[]): Promise<void> {
    const message = await addMessage({ conversation, parent, role: "user", parts });
    await answer(conversation, message.id);
}

/** Has the message `parent` answered, beside the answers that it has. */
export async function answer(conversation: string, parent: string, round = 0): Promise<void> {
    const loaded = await load(conversation);
    if (!loaded) return;
    const { settings, tree } = loaded;
    const request = ask(tree.path(parent), settings);
    const message = await addMessage({
        conversation,
        parent,
        role: "assistant",
        parts: [],
        answer: beginning(settings),
    });
    follow(message, request, outgoing(request), round);
}

/** Goes on with an answer that was cut off, in its place. */
export async function goOn(message: Message): Promise<void> {
    const loaded = await load(message.conversation);
    if (!loaded || message.parent === null) return;
    const { settings, tree } = loaded;
    const request = ask(tree.path(message.parent), settings);
    const begun: Message = { ...message, answer: beginning(settings) };
    await changeMessage(message.id, { answer: begun.answer });
    const going = continuation(request, message).then((told) => ({ ...told, headers: {} }));
    follow(begun, request, going, 0);
}

function follow(message: Message, request: Ask, going: Promise<Outgoing> | Outgoing, round: number): void {
    const run = startRun(message, request, going);
    void run.done.then(async ({ parts, answer }) => {
        const calls = parts.filter((part) => part.kind === "call");
        if (answer.state === "done" && calls.length > 0) await called(message, calls, request.settings, round);
    });
}

/** Runs what the page can run. If that is all, the answer goes on; otherwise the person is asked for the rest. */
async function called(message: Message, calls: readonly CallPart[], settings: Settings, round: number): Promise<void> {
    const here = calls.filter((call) => runsHere(call.name, settings));
    const results = await Promise.all(here.map(runBuiltin));
    const { conversation } = message;
    const told = await addMessage({ conversation, parent: message.id, role: "tool", parts: results });
    if (here.length === calls.length && round < ROUNDS) await answer(conversation, told.id, round + 1);
}

/** Sets what a tool gave back; `undefined` takes it away again. */
export async function setResult(message: Message, call: CallPart, content: string, failed: boolean): Promise<void> {
    const others = message.parts.filter((part) => part.kind !== "result" || part.callId !== call.id);
    const result: ResultPart = { kind: "result", callId: call.id, name: call.name, content, failed };
    await changeMessage(message.id, { parts: [...others, result] });
}

/** An edited message stands beside the one that it was made from, and begins a branch. */
export async function edit(message: Message, parts: Part[]): Promise<void> {
    const { conversation, parent, role } = message;
    if (role === "user") {
        await say(conversation, parent, parts);
        return;
    }
    const { usage: _, times: __, error: ___, ...info } = message.answer ?? { protocol: "", model: "" };
    await addMessage({ conversation, parent, role, parts, answer: { ...info, state: "done" } });
}

/** Asks for another answer beside this one. */
export async function retry(message: Message): Promise<void> {
    if (message.parent !== null) await answer(message.conversation, message.parent);
}

export async function show(message: Message): Promise<void> {
    await showBranch(message.conversation, message.id);
}

/** Deletes a message with all that follows it; for a while that can be taken back. */
export async function remove(message: Message): Promise<void> {
    const undo = await deleteBranch(message);
    toast("Deleted, with all that followed.", { action: { label: "Undo", run: () => void undo() } });
}
