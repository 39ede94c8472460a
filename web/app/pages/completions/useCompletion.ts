import { useCallback, useEffect, useRef, useState } from "react";
import { requestSse } from "../../api/client";
import { type ApiError, asApiError, errorFrom } from "../../api/errors";
import { body, type Options } from "./options";
import { type CompletionChunk, type Drawn, drawn, textOf } from "./tokens";

export interface Completion {
    tokens: readonly Drawn[];
    running: boolean;
    /** Why it ended, as the server says. */
    finish: string | undefined;
    error: ApiError | undefined;
    usage: CompletionChunk["usage"];
    /** Milliseconds to the first token, and tokens a second behind it. */
    firstMs: number | undefined;
    speed: number | undefined;
}

const empty: Completion = {
    tokens: [],
    running: false,
    finish: undefined,
    error: undefined,
    usage: undefined,
    firstMs: undefined,
    speed: undefined,
};

/** A completion that goes on from a prompt and from what is kept of the answer before. */
export function useCompletion() {
    const [completion, setCompletion] = useState(empty);
    const abort = useRef<AbortController>(undefined);
    useEffect(() => () => abort.current?.abort(), []);

    const generate = useCallback(async (prompt: string, options: Options, kept: readonly Drawn[] = []) => {
        abort.current?.abort();
        const own = new AbortController();
        abort.current = own;
        const tokens = [...kept];
        setCompletion({ ...empty, tokens: [...tokens], running: true });
        const started = performance.now();
        let first: number | undefined;
        let scheduled = 0;
        const show = (more: Partial<Completion>) => {
            cancelAnimationFrame(scheduled);
            scheduled = 0;
            if (abort.current === own) setCompletion((before) => ({ ...before, ...more, tokens: [...tokens] }));
        };
        const times = () => {
            const since = first === undefined ? 0 : (performance.now() - first) / 1000;
            const behind = tokens.length - kept.length - 1;
            return {
                firstMs: first === undefined ? undefined : first - started,
                speed: since > 0 && behind > 0 ? behind / since : undefined,
            };
        };
        try {
            const asked = { body: body(prompt + textOf(kept), options), signal: own.signal };
            for await (const { data } of requestSse("/v1/completions", asked)) {
                // Read to its end: leaving here would look like a request that the page broke off.
                if (data === "[DONE]") continue;
                const chunk = JSON.parse(data) as CompletionChunk;
                if (chunk.error) throw errorFrom(chunk, 0);
                const more = drawn(chunk);
                if (more.length > 0) first ??= performance.now();
                tokens.push(...more);
                const finish = chunk.choices?.[0]?.finish_reason;
                if (finish) show({ finish, ...times() });
                else if (chunk.usage) show({ usage: chunk.usage });
                else if (scheduled === 0) scheduled = requestAnimationFrame(() => show(times()));
            }
            show({ running: false });
        } catch (failure) {
            if (own.signal.aborted) show({ running: false, finish: "stopped", ...times() });
            else show({ running: false, error: asApiError(failure) });
        }
    }, []);

    const stop = useCallback(() => abort.current?.abort(), []);
    const clear = useCallback(() => {
        abort.current?.abort();
        abort.current = undefined;
        setCompletion(empty);
    }, []);
    return { completion, generate, stop, clear };
}
