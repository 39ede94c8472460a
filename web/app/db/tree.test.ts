import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Tree } from "./tree";
import type { Message } from "./types";

function message(id: string, parent: string | null, at: number): Message {
    return { id, parent, at, conversation: "c", role: "user", revision: 0, parts: [] };
}

const ids = (messages: readonly Message[]) => messages.map((message) => message.id);

describe("Tree", () => {
    const tree = new Tree([
        message("a", null, 1),
        message("b", "a", 2),
        message("c", "a", 3),
        message("d", "b", 4),
        message("e", null, 5),
    ]);

    it("shows one branch and knows the others", () => {
        expect(ids(tree.path("d"))).toEqual(["a", "b", "d"]);
        expect(ids(tree.siblings(message("b", "a", 2)))).toEqual(["b", "c"]);
        expect(ids(tree.siblings(message("a", null, 1)))).toEqual(["a", "e"]);
    });

    it("goes down to the newest end of a branch", () => {
        expect(tree.leafUnder("b")).toBe("d");
        expect(tree.leafUnder("c")).toBe("c");
        expect(tree.leafUnder(null)).toBe("e");
    });

    it("falls back to the newest where the leaf is gone", () => {
        expect(ids(tree.path("gone"))).toEqual(["e"]);
        expect(ids(tree.path(null))).toEqual(["e"]);
        expect(new Tree([]).path(null)).toEqual([]);
    });

    it("ends even where messages are each other's parents", () => {
        const links = fc.array(fc.tuple(fc.nat({ max: 7 }), fc.nat({ max: 9 })), { maxLength: 8 });
        fc.assert(
            fc.property(links, (links) => {
                const messages = links.map(([id, parent], at) =>
                    message(`m${id}`, parent > 7 ? null : `m${parent}`, at),
                );
                const unique = [...new Map(messages.map((one) => [one.id, one])).values()];
                const tree = new Tree(unique);
                for (const { id } of unique) {
                    expect(tree.path(id).at(-1)?.id).toBe(id);
                    expect(tree.leafUnder(id)).toBeTypeOf("string");
                }
            }),
        );
    });
});
