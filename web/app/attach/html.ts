/** The plain HTML that documents are converted to, as Markdown. It is read as text and never put on a page. */

const BLOCK = /^(?:p|h[1-6]|li|table|tr|ul|ol|blockquote|pre|div)$/;

export function htmlToMarkdown(html: string): string {
    let out = "";
    const lists: ("ul" | "ol")[] = [];
    const numbers: number[] = [];
    let inCell = false;
    let firstRow = false;
    let cells = 0;
    for (const [token] of html.matchAll(/<[^>]*>|[^<]+/g)) {
        if (!token.startsWith("<")) {
            out += decode(token);
            continue;
        }
        const [, end, name = ""] = /^<(\/?)([a-z0-9]+)/i.exec(token) ?? [];
        const tag = name.toLowerCase();
        const closes = end === "/";
        if (tag === "td" || tag === "th") {
            inCell = !closes;
            out += closes ? " |" : " ";
            if (closes) cells++;
        } else if (tag === "tr") {
            if (!closes) {
                out += "\n|";
                cells = 0;
            } else if (firstRow) {
                out += `\n|${" --- |".repeat(cells)}`;
                firstRow = false;
            }
        } else if (tag === "table") {
            firstRow = !closes;
            out += closes ? "\n\n" : "\n";
        } else if (tag === "ul" || tag === "ol") {
            if (closes) {
                lists.pop();
                numbers.pop();
                if (lists.length === 0) out += "\n";
            } else {
                lists.push(tag);
                numbers.push(0);
            }
        } else if (tag === "li" && !closes) {
            const depth = lists.length - 1;
            const number = (numbers[depth] ?? 0) + 1;
            numbers[depth] = number;
            out += `\n${"  ".repeat(Math.max(depth, 0))}${lists[depth] === "ol" ? `${number}.` : "-"} `;
        } else if (/^h[1-6]$/.test(tag)) {
            out += closes ? "\n\n" : `\n\n${"#".repeat(Number(tag[1]))} `;
        } else if (tag === "br") {
            out += inCell ? " " : "\n";
        } else if (BLOCK.test(tag) && closes && !inCell && tag !== "li") {
            out += "\n\n";
        }
    }
    return out
        .replace(/[ \t]+\n/g, "\n")
        .replace(/\n{3,}/g, "\n\n")
        .trim();
}

function decode(text: string): string {
    return text
        .replace(/&lt;/g, "<")
        .replace(/&gt;/g, ">")
        .replace(/&quot;/g, '"')
        .replace(/&#(?:39|x27);/g, "'")
        .replace(/&nbsp;/g, " ")
        .replace(/&amp;/g, "&");
}
