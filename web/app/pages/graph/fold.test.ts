import { describe, expect, it } from "vitest";
import { type Folded, fold, foldAll, type Section } from "./fold";
import { type Graph, resolve, type ValueType } from "./model";

const section = (layer: number): Section => ({ layer, nodes: [] });

/** `A3[B]` for three times A with B behind it. */
function told(folded: readonly Folded[], names: ReadonlyMap<Section, string>): string {
    return folded
        .map((part) =>
            "section" in part ? names.get(part.section) : `${part.repeat.times}(${told(part.repeat.body, names)})`,
        )
        .join(" ");
}

function folds(signatures: string): string {
    const all = [...signatures].map((_, i) => section(i));
    const names = new Map(all.map((section, i) => [section, signatures[i] ?? ""]));
    return told(
        foldAll(
            all,
            [...signatures].map((s) => (s === "." ? undefined : s)),
        ),
        names,
    );
}

describe("foldAll", () => {
    it("folds what repeats, in runs and in periods", () => {
        expect(folds("AAAA")).toBe("4(A)");
        expect(folds("ABC")).toBe("A B C");
        expect(folds("ABBBC")).toBe("A 3(B) C");
        expect(folds("AAABAAABAAAB")).toBe("3(3(A) B)");
        expect(folds("ABABAB")).toBe("3(A B)");
        expect(folds("ABABABA")).toBe("3(A B) A");
        expect(folds("..AA.")).toBe(". . 2(A) .");
        expect(folds("")).toBe("");
    });

    it("keeps every section, in order", () => {
        let state = 1;
        for (let round = 0; round < 200; round++) {
            const signatures = Array.from({ length: round % 23 }, () => {
                state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
                return "AB"[Math.floor(state / 65_536) % 2];
            });
            const all = signatures.map((_, i) => section(i));
            const flat = (folded: readonly Folded[]): (number | undefined)[] =>
                folded.flatMap((part) => {
                    if ("section" in part) return [part.section.layer];
                    // The body is the first of all times.
                    const first = part.repeat.all[0]?.map(({ layer }) => layer);
                    expect(flat(part.repeat.body)).toEqual(first);
                    return part.repeat.all.flat().map(({ layer }) => layer);
                });
            expect(flat(foldAll(all, signatures))).toEqual(all.map(({ layer }) => layer));
        }
    });
});

describe("fold", () => {
    const float = (width: number): ValueType => ({ rows: "tokens", width, integer: false });

    /** Layers of a norm and a product, of which each reads the one before. */
    function graph(widths: readonly number[]): { graph: Graph; types: Record<string, ValueType> } {
        const types: Record<string, ValueType> = { embed: float(8) };
        const made: Graph = { name: "g", weights: [], states: [], nodes: [], output: "out" };
        made.nodes.push({ name: "embed", op: { input: { source: "token_ids" } } });
        let before = "embed";
        for (const [i, width] of widths.entries()) {
            made.weights.push({ name: `blk.${i}.up`, shape: [width, 8], expr: { tensor: `blk.${i}.up` } });
            made.states.push({ name: `k.${i}`, heads: 2 });
            made.nodes.push({ name: `norm.${i}`, op: { norm: { x: before, kind: "rms", eps: 1e-6 } } });
            made.nodes.push({
                name: `up.${i}`,
                op: { linear: { x: `norm.${i}`, weight: `blk.${i}.up`, k_state: `k.${i}` } },
            });
            types[`norm.${i}`] = float(8);
            types[`up.${i}`] = float(8);
            before = `up.${i}`;
        }
        made.nodes.push({ name: "out", op: { linear: { x: before } } });
        types.out = float(3);
        return { graph: made, types };
    }

    const shape = (widths: readonly number[]) => {
        const { graph: made, types } = graph(widths);
        return fold(resolve(made, types, {})).map((part) =>
            "repeat" in part ? part.repeat.times : (part.section.layer ?? "-"),
        );
    };

    it("folds layers that differ in nothing but their number, the first included", () => {
        expect(shape(Array(28).fill(16))).toEqual(["-", 28, "-"]);
    });

    it("tells layers apart whose weights have other shapes", () => {
        expect(shape([16, 16, 32, 16, 16, 16])).toEqual(["-", 2, 2, 3, "-"]);
    });
});
