/** Every request of the page to its server goes through here: the key, the errors, the recording. */

import { ApiError, asApiError, errorFrom, streamCut } from "./errors";
import { apiKey, askForKey } from "./key";
import { ENDED_HERE, type Recorded, recorder } from "./recorder";
import { readSse, type SseFrame } from "./sse";

export interface RequestOptions {
    method?: "GET" | "POST" | "DELETE";
    /** Sent as JSON. */
    body?: unknown;
    headers?: Record<string, string>;
    signal?: AbortSignal;
    /** False for polls, which would push everything else out of the inspector. */
    record?: boolean;
    /** False where a missing key is an answer in itself. */
    askForKey?: boolean;
}

interface Sent {
    response: Response;
    record: Recorded | undefined;
}

/** A key is asked for again until the server takes it or the person gives up. */
async function send(path: string, options: RequestOptions): Promise<Sent> {
    for (;;) {
        const key = apiKey();
        const sent = await sendWith(key, path, options);
        if (sent.response.status !== 401 || options.askForKey === false) return sent;
        if (!(await askForKey(key))) return sent;
        await finishRecord(sent);
    }
}

async function sendWith(key: string, path: string, options: RequestOptions): Promise<Sent> {
    const method = options.method ?? (options.body === undefined ? "GET" : "POST");
    const body = options.body === undefined ? undefined : JSON.stringify(options.body);
    const headers: Record<string, string> = { ...options.headers };
    if (body !== undefined) headers["content-type"] = "application/json";
    const record = options.record === false ? undefined : recorder.begin(method, path, headers, body);
    const init: RequestInit = { method, headers: key ? { ...headers, authorization: `Bearer ${key}` } : headers };
    if (body !== undefined) init.body = body;
    if (options.signal) init.signal = options.signal;
    try {
        const response = await fetch(path, init);
        if (record) {
            record.status = response.status;
            record.firstByte = Date.now() - record.started;
            record.responseHeaders = Object.fromEntries(response.headers);
            recorder.changed();
        }
        return { response, record };
    } catch (failure) {
        end(record, options.signal?.aborted ? ENDED_HERE : failure);
        throw options.signal?.aborted ? failure : asApiError(failure);
    }
}

function end(record: Recorded | undefined, failure?: unknown): void {
    if (!record) return;
    record.duration = Date.now() - record.started;
    if (failure !== undefined) record.failure = failure instanceof Error ? failure.message : String(failure);
    recorder.changed();
}

/** Reads the rest of an answer; what cannot be read is no text. */
async function finishRecord({ response, record }: Sent): Promise<string> {
    try {
        const text = await response.text();
        if (record) record.response = text;
        end(record);
        return text;
    } catch (failure) {
        end(record, failure);
        throw asApiError(failure);
    }
}

async function failure(sent: Sent): Promise<ApiError> {
    const text = await finishRecord(sent);
    let body: unknown;
    try {
        body = JSON.parse(text);
    } catch {
        body = undefined;
    }
    return errorFrom(body, sent.response.status, sent.response.headers);
}

/** The answer as text. */
export async function requestText(path: string, options: RequestOptions = {}): Promise<string> {
    const sent = await send(path, options);
    if (!sent.response.ok) throw await failure(sent);
    return finishRecord(sent);
}

/** The answer as JSON. The caller says what it is: routes of this server are trusted to keep their form. */
export async function requestJson<T>(path: string, options: RequestOptions = {}): Promise<T> {
    const text = await requestText(path, options);
    try {
        return JSON.parse(text) as T;
    } catch {
        throw new ApiError(`\`${path}\` did not answer in JSON.`, { status: -1 });
    }
}

/** The answer's events as they arrive. Leaving the loop, or aborting the signal, ends the request. */
export async function* requestSse(path: string, options: RequestOptions): AsyncGenerator<SseFrame> {
    const sent = await send(path, options);
    const { response, record } = sent;
    if (!response.ok || !response.body) throw await failure(sent);
    try {
        for await (const frame of readSse(response.body)) {
            if (record) recorder.frame(record, frame.event, frame.data);
            yield frame;
        }
        end(record);
    } catch (failure) {
        end(record, options.signal?.aborted ? ENDED_HERE : failure);
        if (options.signal?.aborted) throw failure;
        throw streamCut();
    } finally {
        if (record && record.duration === undefined) end(record, ENDED_HERE);
    }
}
