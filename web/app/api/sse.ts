/** One event of a `text/event-stream`. */
export interface SseFrame {
    /** Its name; `message` where the server gave none. */
    event: string;
    data: string;
}

/** Cuts a stream of server-sent events into frames, whatever pieces it arrives in. */
export class SseParser {
    private buffer = "";
    private event = "";
    private data: string[] = [];
    private begun = false;

    /** The frames that this piece completes. */
    push(text: string): SseFrame[] {
        this.buffer += text;
        if (!this.begun && this.buffer.length > 0) {
            this.begun = true;
            if (this.buffer.startsWith("\ufeff")) this.buffer = this.buffer.slice(1);
        }
        const frames: SseFrame[] = [];
        let start = 0;
        for (;;) {
            const end = lineEnd(this.buffer, start);
            if (end === undefined) break;
            const frame = this.line(this.buffer.slice(start, end.at));
            if (frame) frames.push(frame);
            start = end.next;
        }
        this.buffer = this.buffer.slice(start);
        return frames;
    }

    private line(line: string): SseFrame | undefined {
        if (line === "") return this.dispatch();
        if (line.startsWith(":")) return undefined;
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        let value = colon < 0 ? "" : line.slice(colon + 1);
        if (value.startsWith(" ")) value = value.slice(1);
        if (field === "data") this.data.push(value);
        else if (field === "event") this.event = value;
        return undefined;
    }

    private dispatch(): SseFrame | undefined {
        const frame = this.data.length > 0 ? { event: this.event || "message", data: this.data.join("\n") } : undefined;
        this.event = "";
        this.data = [];
        return frame;
    }
}

/** Where the line ends that starts at `start`, and where the next begins. A CR at the very end may yet be a CR LF. */
function lineEnd(text: string, start: number): { at: number; next: number } | undefined {
    for (let at = start; at < text.length; at++) {
        const c = text.charCodeAt(at);
        if (c === 10) return { at, next: at + 1 };
        if (c === 13) {
            if (at + 1 === text.length) return undefined;
            return { at, next: text.charCodeAt(at + 1) === 10 ? at + 2 : at + 1 };
        }
    }
    return undefined;
}

/** The frames of a response as they arrive. */
export async function* readSse(body: ReadableStream<Uint8Array>): AsyncGenerator<SseFrame> {
    const parser = new SseParser();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    try {
        for (;;) {
            const { done, value } = await reader.read();
            yield* parser.push(done ? decoder.decode() : decoder.decode(value, { stream: true }));
            if (done) return;
        }
    } finally {
        // Ends the request where the reader left before its end; after the end it does nothing.
        await reader.cancel().catch(() => undefined);
    }
}
