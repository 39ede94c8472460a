/** One block of Markdown as tokens: what `marked` knows, and formulas. */

import { Marked, type Token, type TokenizerExtension } from "marked";

/** A formula; `display` stands on lines of its own. */
export interface MathToken {
    type: "math";
    raw: string;
    text: string;
    display: boolean;
}

function formula(raw: string, text: string, display: boolean): MathToken {
    return { type: "math", raw, text: text.trim(), display };
}

const displayed: TokenizerExtension = {
    name: "math",
    level: "block",
    start: (src) => /^ {0,3}(?:\$\$|\\\[)/m.exec(src)?.index,
    tokenizer(src) {
        const match = /^ {0,3}(?:\$\$([\s\S]+?)(?:\$\$|$)|\\\[([\s\S]+?)(?:\\\]|$))[ \t]*(?:\n|$)/.exec(src);
        return match ? formula(match[0], match[1] ?? match[2] ?? "", true) : undefined;
    },
};

/** As pandoc has it: no space inside the dollars, no digit after them, so that prices stay prices. */
const inline: TokenizerExtension = {
    name: "inlineMath",
    level: "inline",
    start: (src) => /\$|\\\(|\\\[/.exec(src)?.index,
    tokenizer(src) {
        const match =
            /^\$\$([^$]+?)\$\$/.exec(src) ??
            /^\$(?!\s)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)/.exec(src) ??
            /^\\\(([\s\S]+?)\\\)/.exec(src) ??
            /^\\\[([\s\S]+?)\\\]/.exec(src);
        return match ? formula(match[0], match[1] ?? "", /^\$\$|^\\\[/.test(match[0])) : undefined;
    },
};

const marked = new Marked({ gfm: true, extensions: [] as never[] });
marked.use({ extensions: [displayed, inline] });

export type BlockToken = Token | MathToken;

export function parseBlock(source: string): BlockToken[] {
    return marked.lexer(source) as BlockToken[];
}

const NAMED: Record<string, string> = {
    amp: "&",
    lt: "<",
    gt: ">",
    quot: '"',
    apos: "'",
    nbsp: "\u00a0",
    ndash: "–",
    mdash: "—",
    hellip: "…",
    times: "×",
    copy: "©",
    rarr: "→",
    larr: "←",
};

/** The text with the usual character references replaced. */
export function unescapeEntities(text: string): string {
    if (!text.includes("&")) return text;
    return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]+));/gi, (whole, decimal, hex, name) => {
        if (name) return NAMED[name.toLowerCase()] ?? whole;
        const code = decimal ? Number(decimal) : Number.parseInt(hex, 16);
        return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
    });
}

/** The address if a link may have it: nothing that runs. */
export function safeHref(href: string): string | undefined {
    return /^(?:https?:|mailto:)/i.test(href.trim()) ? href.trim() : undefined;
}
