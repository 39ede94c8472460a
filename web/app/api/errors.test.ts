import { describe, expect, it } from "vitest";
import { ApiError, asApiError, errorFrom } from "./errors";

describe("errors", () => {
    it("are read in the forms of all protocols", () => {
        const openai = { error: { message: "m", type: "t", code: "c", param: "p" } };
        expect(errorFrom(openai, 400)).toMatchObject({ message: "m", code: "c", param: "p", status: 400 });
        const anthropic = { type: "error", error: { type: "overloaded_error", message: "m" }, request_id: "req_1" };
        expect(errorFrom(anthropic, 529)).toMatchObject({ message: "m", code: "overloaded_error", requestId: "req_1" });
        expect(errorFrom({ error: { code: "server_error", message: "m" } }, 500).message).toBe("m");
        expect(errorFrom(undefined, 502).message).toBe("The server answered 502.");
    });

    it("tell when to come back", () => {
        const error = errorFrom({}, 429, new Headers({ "retry-after": "3", "x-request-id": "req_9" }));
        expect(error).toMatchObject({ retryAfterS: 3, requestId: "req_9" });
        expect(error.advice).toContain("3 s");
    });

    it("say what to do for each way to fail", () => {
        const advice = (told: ConstructorParameters<typeof ApiError>[1]) => new ApiError("m", told).advice;
        expect(advice({ status: 400, code: "context_length_exceeded" })).toContain("--context");
        expect(advice({ status: 400, param: "top_p" })).toContain("`top_p`");
        expect(advice({ status: 401 })).toContain("--api-key");
        expect(advice({ status: 500, requestId: "req_1" })).toContain("req_1");
        expect(advice({ status: 0 })).toContain("reconnects");
    });

    it("stay what they are, and are made of others", () => {
        const error = new ApiError("m", { status: 418 });
        expect(asApiError(error)).toBe(error);
        expect(asApiError(new TypeError("Failed to fetch"))).toMatchObject({ status: 0 });
        expect(asApiError("odd").message).toBe("odd");
    });
});
