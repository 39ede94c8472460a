import { describe, expect, it } from "vitest";
import { htmlToMarkdown } from "./html";
import { fitted, LONGEST } from "./image";
import { AttachError } from "./problem";
import { readAttachment } from "./read";
import { table } from "./sheet";

const read = (content: BlobPart, name: string, type = "") =>
    readAttachment(new File([content], name, { type }), { vision: false });

describe("readAttachment", () => {
    it("reads text in the encodings that it comes in", async () => {
        expect(await read("a\r\nb\n", "a.md")).toMatchObject({ kind: "file", name: "a.md", text: "a\nb" });
        expect(await read(Uint8Array.of(0xff, 0xfe, 0xe9, 0), "b.txt")).toMatchObject({ text: "é" });
        expect(await read(Uint8Array.of(0xe9, 0x21), "c.txt")).toMatchObject({ text: "é!" });
    });

    it("says why it does not read others", async () => {
        await expect(read(Uint8Array.of(0, 1, 2), "x.bin")).rejects.toThrow(/cannot read/);
        await expect(read("x", "p.png", "image/png")).rejects.toThrow(/sees none\. Describe it/);
        expect(await read("<svg/>", "p.svg", "image/svg+xml")).toMatchObject({ kind: "file", text: "<svg/>" });
        await expect(read("  \n", "e.txt")).rejects.toThrow(/no text/);
        await expect(read("%PDF-nonsense", "x.pdf")).rejects.toThrow(AttachError);
    });
});

describe("fitted", () => {
    it("keeps the shape, and what is small enough", () => {
        expect(fitted({ width: LONGEST, height: 7 })).toEqual({ width: LONGEST, height: 7 });
        expect(fitted({ width: 3 * LONGEST, height: 300 })).toEqual({ width: LONGEST, height: 100 });
        expect(fitted({ width: 600, height: 2 * LONGEST })).toEqual({ width: 300, height: LONGEST });
        expect(fitted({ width: 100_000, height: 1 })).toEqual({ width: LONGEST, height: 1 });
    });
});

describe("htmlToMarkdown", () => {
    it("keeps headings, lists and tables", () => {
        const html =
            "<h1>T</h1><p>a &amp; <strong>b</strong></p><ul><li>x<ul><li>y</li></ul></li><li>z</li></ul>" +
            "<ol><li>p</li><li>q</li></ol><table><tr><td><p>1</p></td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table><p>end</p>";
        expect(htmlToMarkdown(html)).toBe(
            "# T\n\na & b\n\n- x\n  - y\n- z\n\n1. p\n2. q\n\n| 1 | 2 |\n| --- | --- |\n| 3 | 4 |\n\nend",
        );
    });

    it("decodes a reference once", () => {
        expect(htmlToMarkdown("<p>&amp;lt;</p>")).toBe("&lt;");
    });
});

describe("table", () => {
    it("has a row for each row, of one width", () => {
        const rows = [
            ["a", "b"],
            [1, null],
            [new Date("2024-02-03T00:00:00Z"), "x|y\nz", true],
        ];
        expect(table(rows)).toBe("| a | b |  |\n| --- | --- | --- |\n| 1 |  |  |\n| 2024-02-03 | x\\|y z | true |");
        expect(table([])).toBe("(empty)");
    });
});
