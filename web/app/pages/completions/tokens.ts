/** The tokens of an answer with how likely they and others were. */

export interface Alternative {
    text: string;
    logprob: number;
}

export interface Drawn extends Alternative {
    /** The likeliest tokens at its place, likeliest first. */
    top: readonly Alternative[];
}

/** A piece of a `/v1/completions` stream, as far as it is read here. */
export interface CompletionChunk {
    choices?: {
        text: string;
        finish_reason: string | null;
        logprobs: {
            tokens: string[];
            token_logprobs: number[];
            top_logprobs: Record<string, number>[];
        } | null;
    }[];
    usage?: {
        prompt_tokens: number;
        completion_tokens: number;
        prompt_tokens_details?: { cached_tokens: number };
    } | null;
    error?: unknown;
}

/** The tokens of a piece. */
export function drawn(chunk: CompletionChunk): Drawn[] {
    const told = chunk.choices?.[0]?.logprobs;
    if (!told) return [];
    return told.tokens.map((text, i) => {
        const top = Object.entries(told.top_logprobs[i] ?? {}).map(([text, logprob]) => ({ text, logprob }));
        return { text, logprob: told.token_logprobs[i] ?? 0, top: top.sort((a, b) => b.logprob - a.logprob) };
    });
}

/** A token that is a part of a character is told by its bytes and cannot be written as text. */
export function isWritable({ text }: Alternative): boolean {
    return !text.startsWith("bytes:\\x");
}

const BYTES = /^bytes:((?:\\x[0-9a-f]{2})+)$/;

/** The text of some tokens; those that are parts of characters are joined to whole ones. */
export function textOf(tokens: readonly Alternative[]): string {
    const encoder = new TextEncoder();
    const parts = tokens.map(({ text }) => {
        const bytes = BYTES.exec(text)?.[1];
        if (bytes === undefined) return encoder.encode(text);
        return Uint8Array.from(bytes.split("\\x").slice(1), (digits) => Number.parseInt(digits, 16));
    });
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return new TextDecoder().decode(all);
}

export function probability({ logprob }: Alternative): number {
    return Math.exp(logprob);
}

/** How unlikely a token was, in five steps: 0 for what was nearly certain. */
export function surprise(token: Alternative): number {
    const p = probability(token);
    return p >= 0.9 ? 0 : p >= 0.6 ? 1 : p >= 0.3 ? 2 : p >= 0.1 ? 3 : 4;
}

/** How many choices a token's place left open: e to the mean of the negative log-probabilities. */
export function perplexity(tokens: readonly Alternative[]): number | undefined {
    if (tokens.length === 0) return undefined;
    return Math.exp(-tokens.reduce((sum, { logprob }) => sum + logprob, 0) / tokens.length);
}
