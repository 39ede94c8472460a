/** What the page asked of the server, for the request inspector. It lives in memory and ends with the page. */

/** A frame of a streamed answer. */
export interface RecordedFrame {
    /** Milliseconds since the request was sent. */
    at: number;
    event: string;
    data: string;
}

export interface Recorded {
    id: number;
    /** Milliseconds since 1970. */
    started: number;
    method: string;
    path: string;
    /** Without the key. */
    headers: Record<string, string>;
    body: string | undefined;
    status: number | undefined;
    responseHeaders: Record<string, string>;
    /** The body of an answer that was not streamed. */
    response: string | undefined;
    frames: RecordedFrame[];
    /** Frames that came after the first `MAX_FRAMES` and were not kept. */
    framesDropped: number;
    /** Milliseconds from the request to the first byte of the answer, and to its end. */
    firstByte: number | undefined;
    duration: number | undefined;
    /** Why there was no answer, or no end of it. */
    failure: string | undefined;
}

/** The failure of a request that the page itself ended. */
export const ENDED_HERE = "ended by the page";

const MAX_RECORDS = 100;
const MAX_FRAMES = 20_000;

class Recorder {
    private records: readonly Recorded[] = [];
    private listeners = new Set<() => void>();
    private next = 1;
    private scheduled = false;

    /** Newest first. The array is another one after every change; the records in it are not. */
    readonly list = (): readonly Recorded[] => this.records;

    readonly subscribe = (listener: () => void): (() => void) => {
        this.listeners.add(listener);
        return () => this.listeners.delete(listener);
    };

    begin(method: string, path: string, headers: Record<string, string>, body: string | undefined): Recorded {
        const record: Recorded = {
            id: this.next++,
            started: Date.now(),
            method,
            path,
            headers,
            body,
            status: undefined,
            responseHeaders: {},
            response: undefined,
            frames: [],
            framesDropped: 0,
            firstByte: undefined,
            duration: undefined,
            failure: undefined,
        };
        this.records = [record, ...this.records].slice(0, MAX_RECORDS);
        this.changed();
        return record;
    }

    frame(record: Recorded, event: string, data: string): void {
        if (record.frames.length < MAX_FRAMES) record.frames.push({ at: Date.now() - record.started, event, data });
        else record.framesDropped++;
        this.changed();
    }

    /** Call after changing a record. */
    changed(): void {
        if (this.scheduled || this.listeners.size === 0) return;
        this.scheduled = true;
        requestAnimationFrame(() => {
            this.scheduled = false;
            this.records = [...this.records];
            for (const listener of this.listeners) listener();
        });
    }

    clear(): void {
        this.records = [];
        this.changed();
    }
}

export const recorder = new Recorder();
