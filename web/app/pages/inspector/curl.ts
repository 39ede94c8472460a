/** A recorded request as a command for a shell. */

import type { Recorded } from "../../api/recorder";

/** Longest body that stands in the command itself; systems bound the length of an argument. */
const LONGEST_ARGUMENT = 32_768;
const END = "END_OF_BODY";

/** A text as one word of a POSIX shell. */
export function quoted(text: string): string {
    return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

type Request = Pick<Recorded, "method" | "path" | "headers" | "body">;

/** The same request with curl. The key is not in it: the shell's BANTAM_API_KEY is, where one is used. */
export function curl({ method, path, headers, body }: Request, origin: string, withKey: boolean): string {
    const implied = body === undefined ? "GET" : "POST";
    const lines = [`curl -sS -N ${method === implied ? "" : `-X ${method} `}${quoted(origin + path)}`];
    for (const [name, value] of Object.entries(headers)) lines.push(`-H ${quoted(`${name}: ${value}`)}`);
    if (withKey) lines.push('-H "authorization: Bearer $BANTAM_API_KEY"');
    if (body === undefined) return joined(lines);
    if (body.length <= LONGEST_ARGUMENT) return joined([...lines, `--data-raw ${quoted(body)}`]);
    // JSON has no line that is the end mark: within it there are no line breaks.
    return `${joined([...lines, `--data-binary @- <<'${END}'`])}\n${body}\n${END}`;
}

function joined(lines: readonly string[]): string {
    return lines.join(" \\\n  ");
}
