/**
 * Cuts Markdown into blocks while it arrives: those that have ended stay as they are, only the last one grows. Each block
 * is parsed by itself. The cut works by lines, so that the blocks depend on the text alone, not on the pieces it came in.
 */

type Kind = "none" | "list" | "indented" | "other";

interface State {
    kind: Kind;
    lines: string[];
    /** What ends the fence or formula that is open: a test of a line. */
    until: ((line: string) => boolean) | undefined;
    /** Whether the last line was blank. */
    blank: boolean;
}

const FENCE = /^( *)(`{3,}|~{3,})(.*)$/;
const MARKER = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?: |\t|$)/;
const HEADING = /^ {0,3}#{1,6}(?:[ \t]|$)/;

export class BlockSplitter {
    private text = "";
    /** Start of the line that has not ended. */
    private line = 0;
    private readonly ended: string[] = [];
    private state: State = begin();

    /** The text so far; another text starts anew unless it continues this one. */
    advanceTo(text: string): void {
        if (!text.startsWith(this.text)) {
            this.line = 0;
            this.ended.length = 0;
            this.state = begin();
        }
        this.text = text;
        for (;;) {
            const end = text.indexOf("\n", this.line);
            if (end < 0) return;
            take(this.state, text.slice(this.line, end).replace(/\r$/, ""), this.ended);
            this.line = end + 1;
        }
    }

    /** Blocks that nothing can change any more. The array grows in place. */
    finished(): readonly string[] {
        return this.ended;
    }

    /** The block that may still grow, and others that an unended line makes of it. */
    growing(): string[] {
        const blocks: string[] = [];
        const state = { ...this.state, lines: [...this.state.lines] };
        const rest = this.text.slice(this.line);
        if (rest !== "") take(state, rest, blocks);
        finish(state, blocks);
        return blocks;
    }
}

/** All blocks of a text. */
export function splitBlocks(text: string): string[] {
    const splitter = new BlockSplitter();
    splitter.advanceTo(text);
    return [...splitter.finished(), ...splitter.growing()];
}

function begin(): State {
    return { kind: "none", lines: [], until: undefined, blank: false };
}

function finish(state: State, into: string[]): void {
    while (state.lines.at(-1)?.trim() === "" && !state.until) state.lines.pop();
    if (state.lines.length > 0) into.push(state.lines.join("\n"));
    Object.assign(state, begin());
}

function take(state: State, line: string, into: string[]): void {
    if (state.until) {
        state.lines.push(line);
        if (!state.until(line)) return;
        state.until = undefined;
        if (state.kind !== "list") finish(state, into);
        return;
    }
    if (line.trim() === "") {
        if (state.lines.length > 0) state.lines.push(line);
        state.blank = state.lines.length > 0;
        return;
    }
    const indent = line.length - line.trimStart().length;
    if (state.blank && !goesOn(state.kind, line, indent)) finish(state, into);
    state.blank = false;
    const until = opening(line, state.kind === "list");
    if (until) {
        if (state.kind !== "list" || indent === 0) finish(state, into);
        if (state.kind === "none") state.kind = "other";
        state.until = until;
        state.lines.push(line);
        return;
    }
    if (HEADING.test(line)) {
        finish(state, into);
        state.lines.push(line);
        finish(state, into);
        return;
    }
    if (MARKER.test(line) && !rule(line)) state.kind = "list";
    else if (state.kind === "none") state.kind = indent >= 4 ? "indented" : "other";
    state.lines.push(line);
}

/** Whether a block goes on after a blank line. */
function goesOn(kind: Kind, line: string, indent: number): boolean {
    if (kind === "list") return indent > 0 || (MARKER.test(line) && !rule(line));
    return kind === "indented" && indent >= 4;
}

/** A line across the page, which looks like a list's marker: `* * *`. */
function rule(line: string): boolean {
    return /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/.test(line);
}

/** What ends the fence or formula that this line opens, if it opens one. */
function opening(line: string, inList: boolean): ((line: string) => boolean) | undefined {
    const fence = FENCE.exec(line);
    if (fence) {
        const [, indent = "", marks = "", info = ""] = fence;
        const mark = marks[0];
        if ((indent.length > 3 && !inList) || (mark === "`" && info.includes("`"))) return undefined;
        return (line) => {
            const text = line.trim();
            return text.length >= marks.length && [...text].every((c) => c === mark);
        };
    }
    const text = line.trim();
    if (text.startsWith("$$") && !text.slice(2).includes("$$")) return (line) => line.trimEnd().endsWith("$$");
    if (text.startsWith("\\[") && !text.includes("\\]")) return (line) => line.trimEnd().endsWith("\\]");
    return undefined;
}
