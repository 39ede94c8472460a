/** Answers under way in this tab: each receives, keeps what it has safe, and tells the page once a frame. */

import { requestJson, requestSse } from "../api/client";
import { asApiError, streamCut } from "../api/errors";
import { checkServer, server } from "../api/server";
import { endAnswer } from "../db/conversations";
import { db } from "../db/database";
import { tabId } from "../db/ids";
import type { AnswerInfo, Message, Part } from "../db/types";
import { protocols } from "../protocols";
import type { AnswerEvent, Ask, Reader } from "../protocols/types";
import { createStore } from "../ui/store";
import { keepLast, takeLast } from "./farewell";

/** Time between two saves of an answer under way. */
export const SAVE_MS = 1000;

/** What is to be sent, and by what the answer is understood. */
export interface Outgoing {
    path: string;
    body: Record<string, unknown>;
    headers: Record<string, string>;
    reader: Reader;
}

/** How an answer stands. */
export interface Live {
    parts: readonly Part[];
    answer: AnswerInfo;
    /** How far the prompt is; undefined before the server tells and once it answers. */
    progress: { done: number; total: number } | undefined;
    /** Pieces of thinking so far, which are about its tokens. */
    thinkingPieces: number;
    /** Whether it thinks at the moment. */
    thinking: boolean;
    /** Whether its thinking can be ended now. */
    canStopThinking: boolean;
}

export class Run {
    readonly live;
    readonly done: Promise<Live>;
    private readonly abort = new AbortController();
    private readonly started = performance.now();
    private parts: Part[];
    private answer: AnswerInfo;
    private progress: Live["progress"];
    private thinkingPieces = 0;
    private thinkingSince: number | undefined;
    private firstAt: number | undefined;
    private responseId: string | undefined;
    private scheduled = false;
    private stopped = false;
    private readonly calls = new Map<number, number>();

    constructor(
        readonly message: Message,
        private readonly ask: Ask,
        outgoing: Promise<Outgoing> | Outgoing,
    ) {
        this.parts = message.parts.map((part) => ({ ...part }));
        this.answer = message.answer ?? { state: "streaming", protocol: ask.settings.protocol, model: "" };
        this.live = createStore(this.snapshot());
        this.done = this.run(outgoing);
    }

    /** Ends the answer where it is. */
    stop(): void {
        this.stopped = true;
        this.abort.abort();
    }

    /** Ends the thinking: the model answers with what it has. */
    async answerNow(): Promise<void> {
        const { path } = protocols[this.ask.settings.protocol];
        if (this.responseId)
            await requestJson(`${path}/${this.responseId}/stop_thinking`, { method: "POST", body: {} });
    }

    private async run(outgoing: Promise<Outgoing> | Outgoing): Promise<Live> {
        const saving = setInterval(() => void this.save(), SAVE_MS);
        const leaving = () => keepLast(this.message.id, this.parts);
        addEventListener("pagehide", leaving);
        await this.save();
        try {
            await this.receive(await outgoing);
            this.answer = { ...this.answer, state: "done" };
        } catch (failure) {
            this.failed(failure);
        }
        clearInterval(saving);
        this.endThinking();
        const now = performance.now();
        const first = this.firstAt ?? now;
        const times = { first: first - this.started, decode: now - first, total: now - this.started };
        this.answer = { ...this.answer, times };
        this.progress = undefined;
        await endAnswer(this.message.id, this.parts, this.answer);
        // Only now: leaving the page ends the stream too, and the page may be gone before the database has written.
        removeEventListener("pagehide", leaving);
        takeLast(this.message.id);
        this.tell();
        return this.live.get();
    }

    private async receive({ path, body, headers, reader }: Outgoing): Promise<void> {
        const frames = requestSse(path, { method: "POST", body, headers, signal: this.abort.signal });
        for await (const frame of frames) {
            for (const event of reader.read(frame)) this.take(event);
            this.schedule();
        }
        if (!reader.ended) throw streamCut();
    }

    private failed(failure: unknown): void {
        if (this.stopped) {
            this.answer = { ...this.answer, state: "stopped" };
            return;
        }
        const error = asApiError(failure);
        const state = error.code === "stream_cut" ? "interrupted" : "failed";
        this.answer = { ...this.answer, state, error: { message: error.message, advice: error.advice } };
        checkServer();
    }

    private take(event: AnswerEvent): void {
        switch (event.kind) {
            case "begun":
                this.responseId = event.id;
                return;
            case "progress":
                this.progress = { done: event.done, total: event.total };
                return;
            case "usage":
                this.answer = { ...this.answer, usage: event.usage };
                return;
            case "finish":
                this.answer = { ...this.answer, finish: event.reason };
                return;
        }
        this.firstAt ??= performance.now();
        this.progress = undefined;
        if (event.kind === "thinking") {
            this.thinkingSince ??= performance.now();
            this.thinkingPieces++;
            this.grow("thinking", event.text);
            return;
        }
        this.endThinking();
        switch (event.kind) {
            case "text":
                this.grow("text", event.text);
                return;
            case "call":
                this.calls.set(event.index, this.parts.length);
                this.parts.push({ kind: "call", id: event.id, name: event.name, arguments: "" });
                return;
            case "arguments": {
                const at = this.calls.get(event.index);
                const call = at === undefined ? undefined : this.parts[at];
                if (at !== undefined && call?.kind === "call") {
                    this.parts[at] = { ...call, arguments: call.arguments + event.text };
                }
            }
        }
    }

    /** Adds to the last part of this kind, or begins one. Parts that are on the page are never changed, but replaced. */
    private grow(kind: "text" | "thinking", text: string): void {
        const last = this.parts.at(-1);
        if (last?.kind === kind) this.parts[this.parts.length - 1] = { ...last, text: last.text + text };
        else this.parts.push({ kind, text });
    }

    private endThinking(): void {
        if (this.thinkingSince === undefined) return;
        const ms = performance.now() - this.thinkingSince;
        this.thinkingSince = undefined;
        const at = this.parts.findLastIndex((part) => part.kind === "thinking");
        const part = this.parts[at];
        if (part?.kind === "thinking") this.parts[at] = { ...part, ms: (part.ms ?? 0) + ms };
    }

    private snapshot(): Live {
        const thinking = this.thinkingSince !== undefined;
        return {
            parts: [...this.parts],
            answer: this.answer,
            progress: this.progress,
            thinkingPieces: this.thinkingPieces,
            thinking,
            canStopThinking:
                thinking && this.responseId !== undefined && server.get().props?.capabilities.stop_thinking !== false,
        };
    }

    /** The page is told at most once a frame, and now and then while it is not seen and has no frames. */
    private schedule(): void {
        if (this.scheduled) return;
        this.scheduled = true;
        if (document.visibilityState === "visible") requestAnimationFrame(() => this.tell());
        else setTimeout(() => this.tell(), 250);
    }

    private tell(): void {
        this.scheduled = false;
        this.live.set(this.snapshot());
    }

    private async save(): Promise<void> {
        if (this.answer.state !== "streaming") return;
        const { id, conversation } = this.message;
        const row = { id, conversation, tab: tabId(), at: Date.now(), parts: [...this.parts], answer: this.answer };
        await db.partials.put(row).catch(() => undefined);
    }
}

/** Those of this tab, by message. */
export const runs = createStore<ReadonlyMap<string, Run>>(new Map());

export function startRun(message: Message, ask: Ask, outgoing: Promise<Outgoing> | Outgoing): Run {
    const run = new Run(message, ask, outgoing);
    runs.update((all) => new Map(all).set(message.id, run));
    void run.done.finally(() =>
        runs.update((all) => {
            const left = new Map(all);
            left.delete(message.id);
            return left;
        }),
    );
    return run;
}

/** An answer that nobody receives any more: of this tab before it was loaded again, or of one that is closed. */
const DEAD_MS = 5 * SAVE_MS;

/** Ends answers whose tab is gone: they keep what arrived, and are marked. True if others are still received elsewhere. */
export async function recover(conversation: string): Promise<boolean> {
    const messages = await db.messages.where({ conversation }).toArray();
    let elsewhere = false;
    for (const message of messages) {
        if (message.answer?.state !== "streaming" || runs.get().has(message.id)) continue;
        const partial = await db.partials.get(message.id);
        if (partial && partial.tab !== tabId() && Date.now() - partial.at < DEAD_MS) {
            elsewhere = true;
            continue;
        }
        // A run may have begun or ended while this looked.
        const fresh = await db.messages.get(message.id);
        if (fresh?.answer?.state !== "streaming" || runs.get().has(message.id)) continue;
        await endAnswer(message.id, takeLast(message.id) ?? partial?.parts ?? message.parts, {
            ...(partial?.answer ?? fresh.answer),
            state: "interrupted",
            error: {
                message: "The page was closed before the answer ended.",
                advice: "What arrived is kept. Retry, or continue from here.",
            },
        });
    }
    return elsewhere;
}
