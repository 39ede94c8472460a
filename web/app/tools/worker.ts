/** Runs built-in tools away from the page. */

import { builtin } from "./builtins";

export interface ToWorker {
    id: number;
    name: string;
    arguments: string;
}

export interface FromWorker {
    id: number;
    content: string;
    failed: boolean;
}

// Nothing here asks the network for anything; a tool that were added without thought could not either.
for (const name of [
    "fetch",
    "XMLHttpRequest",
    "WebSocket",
    "EventSource",
    "WebTransport",
    "importScripts",
    "indexedDB",
]) {
    Object.defineProperty(globalThis, name, { value: undefined, configurable: false, writable: false });
}

self.onmessage = ({ data }: MessageEvent<ToWorker>) => {
    const answer = (content: string, failed: boolean) =>
        postMessage({ id: data.id, content, failed } satisfies FromWorker);
    try {
        const tool = builtin(data.name);
        if (!tool) throw new Error(`there is no tool \`${data.name}\``);
        const given: unknown = JSON.parse(data.arguments || "{}");
        if (typeof given !== "object" || given === null) throw new Error("the arguments must be an object");
        answer(tool.run(given as Record<string, unknown>), false);
    } catch (failure) {
        answer(JSON.stringify({ error: failure instanceof Error ? failure.message : String(failure) }), true);
    }
};
