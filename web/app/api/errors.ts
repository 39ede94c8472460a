/** Why something could not be done, with what to do about it. */
export class ApiError extends Error {
    /** 0 where no answer came. */
    readonly status: number;
    readonly code: string | undefined;
    /** The field of the request that is at fault. */
    readonly param: string | undefined;
    /** Name of the request in the server's log. */
    readonly requestId: string | undefined;
    readonly retryAfterS: number | undefined;

    constructor(message: string, told: Partial<Omit<ApiError, "message" | "name">> = {}) {
        super(message);
        this.name = "ApiError";
        this.status = told.status ?? 0;
        this.code = told.code;
        this.param = told.param;
        this.requestId = told.requestId;
        this.retryAfterS = told.retryAfterS;
    }

    /** What the person at the page can do. */
    get advice(): string {
        return advice(this);
    }
}

function advice(error: ApiError): string {
    switch (error.code) {
        case "context_length_exceeded":
            return "Edit an earlier message to branch off there, remove attachments, or start the server with a larger --context.";
        case "deadline_exceeded":
            return "Raise the deadline in the settings, or ask for a shorter answer.";
        case "stream_cut":
            return "What arrived is kept. Retry once the server is back, or continue from here.";
    }
    switch (error.status) {
        case 0:
            return "Check that the server runs and that this machine can reach it. The page reconnects by itself.";
        case 401:
            return "Enter the key that the server was started with (--api-key).";
        case 404:
            return "The server is older than this page or does not offer this. Reload the page.";
        case 413:
            return "Send fewer or smaller attachments.";
        case 429:
            return `The server is busy. Retry in ${error.retryAfterS ?? 2} s, or raise --concurrency.`;
        case 503:
            return "The server is starting or ending. The page tells when it is back; then retry.";
    }
    if (error.status >= 500) {
        const name = error.requestId ? ` under ${error.requestId}` : "";
        return `Retry. If it happens again, the server's log tells more${name}.`;
    }
    if (error.param) return `Change \`${error.param}\` and send again.`;
    return "Change the request and send again.";
}

/** A stream that ended without saying so: the server is gone, or the way to it. */
export function streamCut(): ApiError {
    return new ApiError("The connection ended before the answer did.", { code: "stream_cut" });
}

/** Any failure as one that can be shown. */
export function asApiError(failure: unknown): ApiError {
    if (failure instanceof ApiError) return failure;
    if (failure instanceof TypeError) return new ApiError("The server cannot be reached.");
    return new ApiError(failure instanceof Error ? failure.message : String(failure), { status: -1 });
}

/** The error that an answer with a failing status, or an `error` event, describes in any of the protocols' forms. */
export function errorFrom(body: unknown, status: number, headers?: Headers): ApiError {
    const outer = asRecord(body);
    const inner = asRecord(outer.error ?? asRecord(outer.response).error ?? body);
    const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);
    const retry = Number(headers?.get("retry-after"));
    return new ApiError(text(inner.message) ?? (status > 0 ? `The server answered ${status}.` : "The server failed."), {
        status,
        code: text(inner.code) ?? text(inner.type),
        param: text(inner.param),
        requestId: headers?.get("x-request-id") ?? text(outer.request_id),
        retryAfterS: Number.isFinite(retry) && retry > 0 ? retry : undefined,
    });
}

function asRecord(value: unknown): Record<string, unknown> {
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
