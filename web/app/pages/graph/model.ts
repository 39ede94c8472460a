/** `GET /graph`, and what the page makes of it. */

/** A graph in its JSON form, as far as it is read here. */
export interface Graph {
    name: string;
    weights: { name: string; shape: number[]; expr: unknown }[];
    states: { name: string; [attribute: string]: unknown }[];
    recurrent?: { name: string; [attribute: string]: unknown }[];
    nodes: { name: string; op: Record<string, unknown> }[];
    output: string;
}

export type Rows = "tokens" | "logits" | { strided: { stride: number } };

export interface ValueType {
    rows: Rows;
    width: number;
    integer: boolean;
}

export interface GraphAnswer {
    graph: { bantam_graph: number; graph: Graph };
    draft: { graph: Graph; method: unknown } | null;
    types: { graph: Record<string, ValueType>; draft: Record<string, ValueType> | null };
    tensors: Record<string, { type: string; bytes: number }>;
}

/** A place of an op that names something: `k` of attention, or `sources.0.k`. */
export interface Reference {
    place: string;
    name: string;
}

/** One operation. */
export interface Node {
    name: string;
    /** Its name without the layer. */
    base: string;
    layer: number | undefined;
    op: string;
    /** Values that it reads, each by its full name. */
    inputs: readonly Reference[];
    weights: readonly Reference[];
    states: readonly Reference[];
    /** What else stands in it. */
    attributes: readonly { place: string; value: string }[];
    /** The names of what it yields, with their types. */
    results: readonly { name: string; type: ValueType }[];
}

export interface Weight {
    name: string;
    shape: readonly number[];
    /** The checkpoint's tensors that it is made of. */
    tensors: readonly { name: string; type: string; bytes: number }[];
}

/** A graph with everything resolved. */
export interface Model {
    name: string;
    nodes: readonly Node[];
    byName: ReadonlyMap<string, Node>;
    /** Which node yields a value. */
    producer: ReadonlyMap<string, Node>;
    /** Which nodes read what a node yields. */
    readers: ReadonlyMap<string, readonly Node[]>;
    weights: ReadonlyMap<string, Weight>;
    states: ReadonlyMap<string, Record<string, unknown>>;
    output: string;
}

/** Attributes that are words of the op, whatever values are called. */
const WORDS = new Set(["kind", "act", "pairing", "scoring", "source", "rows", "mask", "dtype", "scaling"]);

export function layerOf(name: string): number | undefined {
    const digits = /\.(\d+)$/.exec(name)?.[1];
    return digits === undefined ? undefined : Number(digits);
}

/** A name without the layer, wherever it stands: `k` for `k.3`, `blk.*.attn_q` for `blk.3.attn_q`. */
export function withoutLayer(name: string, layer: number | undefined): string {
    if (layer === undefined) return name;
    const parts = name.split(".").map((part) => (part === String(layer) ? "*" : part));
    if (parts.at(-1) === "*") parts.pop();
    return parts.join(".");
}

export function resolve(graph: Graph, types: Record<string, ValueType>, tensors: GraphAnswer["tensors"]): Model {
    const weights = new Map(
        graph.weights.map(({ name, shape, expr }) => {
            const made = tensorNames(expr).map((name) => ({ name, ...(tensors[name] ?? { type: "?", bytes: 0 }) }));
            return [name, { name, shape, tensors: made }];
        }),
    );
    const states = new Map([...graph.states, ...(graph.recurrent ?? [])].map((state) => [state.name, state]));
    const results = resultsOf(graph, types);
    const producer = new Map<string, Node>();
    const readers = new Map<string, Node[]>();
    const byName = new Map<string, Node>();
    for (const { name, op: outer } of graph.nodes) {
        const [op, attributes] = Object.entries(outer)[0] ?? ["?", {}];
        const found = { inputs: [], weights: [], states: [], attributes: [] } as Found;
        walk(attributes, [], { producer, weights, states }, found);
        const layer = layerOf(name);
        const node: Node = {
            name,
            base: withoutLayer(name, layer),
            layer,
            op,
            ...found,
            results: results.get(name) ?? [],
        };
        byName.set(name, node);
        for (const result of node.results) producer.set(result.name, node);
        for (const from of new Set(found.inputs.map(({ name }) => producer.get(name)?.name))) {
            if (from !== undefined) readers.set(from, [...(readers.get(from) ?? []), node]);
        }
    }
    return {
        name: graph.name,
        nodes: [...byName.values()],
        byName,
        producer,
        readers,
        weights,
        states,
        output: graph.output,
    };
}

interface Found {
    inputs: Reference[];
    weights: Reference[];
    states: Reference[];
    attributes: { place: string; value: string }[];
}

interface Known {
    producer: ReadonlyMap<string, unknown>;
    weights: ReadonlyMap<string, unknown>;
    states: ReadonlyMap<string, unknown>;
}

function walk(value: unknown, path: readonly string[], known: Known, found: Found): void {
    if (typeof value === "object" && value !== null) {
        for (const [key, inner] of Object.entries(value)) walk(inner, [...path, key], known, found);
        return;
    }
    const place = path.join(".");
    const key = path.findLast((part) => !/^\d+$/.test(part)) ?? "";
    if (typeof value === "string" && !WORDS.has(key)) {
        const isState = key === "state" || key.endsWith("_state") || key === "states";
        if (isState && known.states.has(value)) return void found.states.push({ place, name: value });
        if (known.producer.has(value)) return void found.inputs.push({ place, name: value });
        if (known.weights.has(value)) return void found.weights.push({ place, name: value });
        if (known.states.has(value)) return void found.states.push({ place, name: value });
    }
    found.attributes.push({ place, value: typeof value === "number" ? shortNumber(value) : String(value) });
}

/** The number as a person would write it: 1e-6, not the nearest double of the nearest float. */
function shortNumber(value: number): string {
    return String(Number(value.toPrecision(7)));
}

/** What each node yields: a value of its own name, or several whose names begin with it. */
function resultsOf(graph: Graph, types: Record<string, ValueType>): Map<string, { name: string; type: ValueType }[]> {
    const nodes = new Set(graph.nodes.map(({ name }) => name));
    const results = new Map<string, { name: string; type: ValueType }[]>();
    for (const [name, type] of Object.entries(types)) {
        const node = nodes.has(name) ? name : name.slice(0, name.lastIndexOf("."));
        const all = results.get(node);
        if (all) all.push({ name, type });
        else results.set(node, [{ name, type }]);
    }
    return results;
}

/** The tensors that a weight's expression names. */
function tensorNames(expr: unknown): string[] {
    if (typeof expr !== "object" || expr === null) return [];
    return Object.entries(expr).flatMap(([key, inner]) =>
        key === "tensor" && typeof inner === "string" ? [inner] : tensorNames(inner),
    );
}

export function shapeText({ rows, width, integer }: ValueType): string {
    const space = typeof rows === "string" ? rows : `blocks of ${rows.strided.stride}`;
    return `${space} × ${width}${integer ? " ids" : ""}`;
}

export function parameters(weight: Weight): number {
    return weight.shape.reduce((product, extent) => product * extent, 1);
}
