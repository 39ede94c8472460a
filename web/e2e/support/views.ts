import type { Browser } from "playwright-core";
import { type Look, type Opened, open } from "./browser";

/** A browser of its own on one of the pages beside the chat. */
export async function openView(browser: Browser, url: string, view: string, look: Look = {}): Promise<Opened> {
    const opened = await open(browser, url, look);
    await opened.page.goto(`${url}/#/${view}`);
    await opened.page.getByRole("heading", { level: 1 }).waitFor();
    return opened;
}

/** A stream that another client reads, until it is left. */
export async function stream(url: string, text: string): Promise<AbortController> {
    const client = new AbortController();
    const body = { messages: [{ role: "user", content: text }], stream: true, max_tokens: 4000 };
    const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: client.signal,
    });
    if (!response.ok || !response.body) throw new Error(`${response.status} ${await response.text()}`);
    void read(response.body);
    return client;
}

async function read(body: ReadableStream<Uint8Array>): Promise<void> {
    try {
        for await (const piece of body) void piece;
    } catch {
        // The client left.
    }
}
