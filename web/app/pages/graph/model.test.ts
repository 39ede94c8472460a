import { expect, it } from "vitest";
import { type Graph, layerOf, resolve, shapeText, type ValueType, withoutLayer } from "./model";

it("finds the layer in a name", () => {
    expect([layerOf("attn_norm.12"), layerOf("logits"), layerOf("block_positions_4")]).toEqual([
        12,
        undefined,
        undefined,
    ]);
    expect(withoutLayer("attn_norm.12", 12)).toBe("attn_norm");
    expect(withoutLayer("blk.1.ffn_1.weight", 1)).toBe("blk.*.ffn_1.weight");
    expect(withoutLayer("ffn_route.3.ids", 3)).toBe("ffn_route.*.ids");
    expect(withoutLayer("k.3", 4)).toBe("k.3");
});

const ids: ValueType = { rows: "tokens", width: 2, integer: true };
const graph: Graph = {
    name: "g",
    weights: [
        { name: "w", shape: [4, 2], expr: { add: [{ tensor: "a" }, { slice: { of: { tensor: "b" }, axis: 0 } }] } },
    ],
    // A state and a value of one name.
    states: [{ name: "delta.0", heads: 1 }],
    nodes: [
        { name: "tokens", op: { input: { source: "tokens" } } },
        { name: "route.0", op: { route: { scores: "tokens", used: 2, scoring: "softmax" } } },
        { name: "delta.0", op: { delta_rule: { q: "route.0.ids", state: "delta.0", scale: 0.0883883461356163 } } },
        {
            name: "out",
            op: { attention: { q: "delta.0", sources: [{ k: "route.0.weights" }, { k: "tokens" }], weight: "w" } },
        },
    ],
    output: "out",
};
const types = { tokens: ids, "route.0.ids": ids, "route.0.weights": ids, "delta.0": ids, out: ids };
const model = resolve(graph, types, { a: { type: "Q4_K", bytes: 9 } });

it("tells values, weights, states and words apart", () => {
    const node = (name: string) => model.byName.get(name);
    expect(node("tokens")).toMatchObject({ inputs: [], attributes: [{ place: "source", value: "tokens" }] });
    expect(node("delta.0")).toMatchObject({
        inputs: [{ place: "q", name: "route.0.ids" }],
        states: [{ place: "state", name: "delta.0" }],
        attributes: [{ place: "scale", value: "0.08838835" }],
    });
    expect(node("out")?.inputs.map(({ place }) => place)).toEqual(["q", "sources.0.k", "sources.1.k"]);
    expect(node("out")?.weights).toEqual([{ place: "weight", name: "w" }]);
});

it("knows who yields a value, and who reads it", () => {
    expect(model.producer.get("route.0.ids")?.name).toBe("route.0");
    expect(model.readers.get("route.0")?.map(({ name }) => name)).toEqual(["delta.0", "out"]);
    expect(model.readers.get("out")).toBeUndefined();
});

it("knows the tensors of a weight", () => {
    expect(model.weights.get("w")?.tensors).toEqual([
        { name: "a", type: "Q4_K", bytes: 9 },
        { name: "b", type: "?", bytes: 0 },
    ]);
});

it("tells shapes", () => {
    expect(shapeText(ids)).toBe("tokens × 2 ids");
    expect(shapeText({ rows: { strided: { stride: 4 } }, width: 64, integer: false })).toBe("blocks of 4 × 64");
});
