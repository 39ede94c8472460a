/** Tokens with their text, as `/tokenize` and `/apply-template` tell them. */

export interface Token {
    id: number;
    /** Its text, or its bytes where it is a part of a character. */
    piece: string | number[];
    /** A control token. */
    special?: true;
}

/** Tokens that are shown or left out together. */
export interface Chunk {
    /** Index of its first token. */
    start: number;
    tokens: readonly Token[];
    /** Letters and line breaks, by which its height is guessed before it is shown. */
    letters: number;
    lines: number;
}

const CHUNK = 256;

/** The tokens in chunks; of two lists that begin alike, the chunks of the beginning are the same objects. */
export function chunks(tokens: readonly Token[], before: readonly Chunk[] = []): Chunk[] {
    const all: Chunk[] = [];
    for (let start = 0; start < tokens.length; start += CHUNK) {
        const part = tokens.slice(start, start + CHUNK);
        const known = before[all.length];
        all.push(known && alike(known.tokens, part) ? known : chunk(start, part));
    }
    return all;
}

function chunk(start: number, tokens: readonly Token[]): Chunk {
    let letters = 0;
    let lines = 0;
    for (const token of tokens) {
        const text = shown(token);
        letters += text.length;
        lines += text.split("\n").length - 1;
    }
    return { start, tokens, letters, lines };
}

function alike(a: readonly Token[], b: readonly Token[]): boolean {
    return a.length === b.length && a.every((token, i) => token.id === b[i]?.id);
}

/** The token's text as it is shown: line breaks and tabs have a sign, parts of characters are told in hexadecimal. */
export function shown({ piece }: Token): string {
    if (typeof piece !== "string") return piece.map(hex).join("");
    return piece.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t").replaceAll("\r", "␍");
}

function hex(byte: number): string {
    return `‹${byte.toString(16).padStart(2, "0")}›`;
}

/** The token in one line, its spaces to be seen. */
export function named({ piece }: Token): string {
    if (typeof piece !== "string") return piece.map(hex).join("");
    return piece.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍").replaceAll(" ", "␣");
}

export function byteCount({ piece }: Token): number {
    return typeof piece === "string" ? new TextEncoder().encode(piece).length : piece.length;
}
