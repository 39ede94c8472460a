import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { curl, quoted } from "./curl";

/** What a shell makes of these words. */
function words(command: string): string[] {
    const script = `for word in ${command}; do printf '%s\\0' "$word"; done`;
    return execFileSync("sh", ["-c", script], { encoding: "utf8" }).split("\0").slice(0, -1);
}

describe("quoted", () => {
    it("is one word of the shell, whatever is in it", () => {
        const texts = [
            "plain/path",
            "it's",
            "''",
            '$HOME `id` "x" \\n',
            "a\nb",
            "*",
            "-n",
            "ünïcödé 🐔",
            "!x",
            "~",
            "#",
        ];
        for (const text of texts) expect(words(quoted(text))).toEqual([text]);
        expect(words(texts.map(quoted).join(" "))).toEqual(texts);
    });
});

describe("curl", () => {
    const request = { method: "POST", path: "/v1/x?a=b", headers: { "content-type": "application/json" }, body: "{}" };

    it("names the method only where curl would take another", () => {
        expect(curl(request, "http://h:1", false)).toBe(
            "curl -sS -N 'http://h:1/v1/x?a=b' \\\n  -H 'content-type: application/json' \\\n  --data-raw '{}'",
        );
        const bare = { ...request, headers: {}, body: undefined };
        expect(curl({ ...bare, method: "GET" }, "http://h", false)).toBe("curl -sS -N 'http://h/v1/x?a=b'");
        expect(curl({ ...bare, method: "DELETE" }, "http://h", false)).toContain("-X DELETE ");
        expect(curl({ ...bare, method: "POST" }, "http://h", false)).toContain("-X POST ");
    });

    it("has the name of the key and never the key", () => {
        expect(curl(request, "http://h", true)).toContain('-H "authorization: Bearer $BANTAM_API_KEY"');
    });

    it("gives long bodies as input", () => {
        const body = JSON.stringify({ text: "it's\n$HOME ".repeat(20_000) });
        const command = curl({ ...request, body }, "http://h", false);
        const script = command.replace(/^curl[^<]*/, "cat ");
        expect(execFileSync("sh", { input: script, encoding: "utf8", maxBuffer: 1 << 24 })).toBe(`${body}\n`);
    });
});
