import { describe, expect, it } from "vitest";
import { byteCount, chunks, named, shown, type Token } from "./pieces";

const tokens = (count: number, piece = "a"): Token[] => Array.from({ length: count }, (_, id) => ({ id, piece }));

describe("chunks", () => {
    it("have all tokens in their order", () => {
        const all = tokens(1000);
        expect(chunks(all).flatMap((chunk) => chunk.tokens)).toEqual(all);
        expect(chunks(all).map((chunk) => chunk.start)).toEqual([0, 256, 512, 768]);
        expect(chunks([])).toEqual([]);
    });

    it("stay the same objects as far as two lists begin alike", () => {
        const before = chunks(tokens(1000));
        const changed = tokens(1000).map((token, i) => (i === 600 ? { ...token, id: -1 } : token));
        const after = chunks(changed, before);
        expect(after.map((chunk, i) => chunk === before[i])).toEqual([true, true, false, true]);
    });

    it("tell their letters and line breaks", () => {
        const [chunk] = chunks([
            { id: 1, piece: "ab\n" },
            { id: 2, piece: "\n" },
        ]);
        expect([chunk?.letters, chunk?.lines]).toEqual([6, 2]);
    });
});

describe("tokens", () => {
    const part: Token = { id: 1, piece: [0xf0, 0x0f] };

    it("show what cannot be seen", () => {
        expect(shown({ id: 1, piece: " a\n\t" })).toBe(" a↵\n⇥\t");
        expect(named({ id: 1, piece: " a\n" })).toBe("␣a↵");
        expect([shown(part), named(part)]).toEqual(["‹f0›‹0f›", "‹f0›‹0f›"]);
    });

    it("have as many bytes as they stand for", () => {
        expect([byteCount({ id: 1, piece: "ü🐔" }), byteCount(part)]).toEqual([6, 2]);
    });
});
