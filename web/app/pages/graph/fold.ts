/** Layers of the same shape, told once: runs and periods of equal sections are folded. */

import { type Model, type Node, withoutLayer } from "./model";

/** Nodes that follow each other and belong to one layer, or to none. */
export interface Section {
    layer: number | undefined;
    nodes: readonly Node[];
}

/** Sections that come again and again: `times` times what `body` has, one after the other. */
export interface Repeat {
    times: number;
    /** The first of them, folded in itself. */
    body: readonly Folded[];
    /** The sections of every time, in order. */
    all: readonly (readonly Section[])[];
}

export type Folded = { section: Section } | { repeat: Repeat };

/** Longest period that is looked for: models repeat a few kinds of layers. */
const LONGEST_PERIOD = 16;

export function sections(model: Model): Section[] {
    const all: { layer: number | undefined; nodes: Node[] }[] = [];
    for (const node of model.nodes) {
        const last = all.at(-1);
        if (last && last.layer === node.layer) last.nodes.push(node);
        else all.push({ layer: node.layer, nodes: [node] });
    }
    return all;
}

/** Equal for sections that compute the same, on weights of the same shapes. */
export function signature(section: Section, model: Model): string {
    const inside = new Set(section.nodes.map(({ name }) => name));
    const local = (name: string) => withoutLayer(name, section.layer);
    const nodes = section.nodes.map((node) => {
        const inputs = node.inputs.map(({ place, name }) => {
            const from = model.producer.get(name);
            const type = from?.results.find((result) => result.name === name)?.type;
            // What comes from outside is what it is, not what it is called: the first layer reads the embedding.
            return [place, from && inside.has(from.name) ? local(name) : type];
        });
        const weights = node.weights.map(({ place, name }) => [place, model.weights.get(name)?.shape]);
        const states = node.states.map(({ place, name }) => {
            const { name: _, ...state } = model.states.get(name) ?? {};
            return [place, local(name) !== name || section.layer === undefined, state];
        });
        const results = node.results.map(({ name, type }) => [local(name), type]);
        return [node.base, node.op, inputs, weights, states, node.attributes, results];
    });
    return JSON.stringify(nodes);
}

/** The sections with what repeats folded. */
export function fold(model: Model): Folded[] {
    const all = sections(model);
    return foldAll(
        all,
        all.map((section) => (section.layer === undefined ? undefined : signature(section, model))),
    );
}

/** Sections whose signature is undefined are never folded. */
export function foldAll(all: readonly Section[], signatures: readonly (string | undefined)[]): Folded[] {
    const folded: Folded[] = [];
    let at = 0;
    while (at < all.length) {
        const { period, times } = longest(signatures, at);
        const here = all[at];
        if (times < 2) {
            if (here) folded.push({ section: here });
            at++;
            continue;
        }
        const one = (i: number) => all.slice(at + i * period, at + (i + 1) * period);
        const body = foldAll(one(0), period === 1 ? [undefined] : signatures.slice(at, at + period));
        folded.push({ repeat: { times, body, all: Array.from({ length: times }, (_, i) => one(i)) } });
        at += period * times;
    }
    return folded;
}

/** The repetition that begins at a section and covers most; of equal ones that with the shortest period. */
function longest(signatures: readonly (string | undefined)[], at: number): { period: number; times: number } {
    let best = { period: 1, times: 1 };
    for (let period = 1; period <= LONGEST_PERIOD; period++) {
        const repeats = (i: number) =>
            signatures[i] !== undefined && signatures[i] === signatures[at + ((i - at) % period)];
        let end = at;
        while (end < signatures.length && repeats(end)) end++;
        const times = Math.floor((end - at) / period);
        if (times >= 2 && period * times > best.period * best.times) best = { period, times };
    }
    return best;
}
