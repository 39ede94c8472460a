/** Where the nodes of a section stand: in ranks from top to bottom, each below all that it reads. */

export interface Item {
    id: string;
    /** Ids of the items that it reads. */
    reads: readonly string[];
    width: number;
    height: number;
}

export interface Placed {
    id: string;
    /** Of the top left corner. */
    x: number;
    y: number;
    width: number;
    height: number;
}

export interface Edge {
    from: string;
    to: string;
    /** From the bottom of one to the top of the other, by way of the ranks between. */
    points: readonly { x: number; y: number }[];
}

export interface Layout {
    items: readonly Placed[];
    edges: readonly Edge[];
    width: number;
    height: number;
}

const GAP_X = 14;
const GAP_Y = 34;
/** Room for a line that passes a rank. */
const PASSING = 10;
const SWEEPS = 8;
/** A little less than each wish, so that the whole does not drift to one side. */
const TO_THE_MIDDLE = 0.85;

/** A place in a rank: an item, or where an edge passes. */
interface Place {
    item: Item | undefined;
    rank: number;
    width: number;
    centre: number;
    above: Place[];
    below: Place[];
}

/** Items must stand behind those that they read; what is read and is no item is passed over. */
export function layout(items: readonly Item[]): Layout {
    const { ranks, chains } = ranked(items);
    for (let sweep = 0; sweep < SWEEPS; sweep++) order(ranks, sweep % 2 === 0);
    for (const rank of ranks) centred(rank);
    for (let sweep = 0; sweep < SWEEPS; sweep++) {
        const down = sweep % 2 === 0;
        for (const rank of down ? ranks : [...ranks].reverse()) {
            pack(rank, (place) => {
                const wish = mean((down ? place.above : place.below).map(({ centre }) => centre));
                return (wish ?? place.centre) * TO_THE_MIDDLE;
            });
        }
    }
    return drawn(ranks, chains);
}

interface Chain {
    from: string;
    to: string;
    places: readonly Place[];
}

function ranked(items: readonly Item[]): { ranks: Place[][]; chains: Chain[] } {
    const places = new Map<string, Place>();
    for (const item of items) {
        const above = item.reads.flatMap((id) => places.get(id) ?? []);
        const rank = Math.max(-1, ...above.map(({ rank }) => rank)) + 1;
        places.set(item.id, { item, rank, width: item.width, centre: 0, above: [], below: [] });
    }
    for (const item of items.toReversed()) sink(item, items, places);
    const ranks: Place[][] = [];
    const enter = (place: Place) => {
        let rank = ranks[place.rank];
        while (!rank) {
            ranks.push([]);
            rank = ranks[place.rank];
        }
        rank.push(place);
    };
    for (const place of places.values()) enter(place);
    const chains: Chain[] = [];
    for (const item of items) {
        for (const id of new Set(item.reads)) {
            const [from, to] = [places.get(id), places.get(item.id)];
            if (from && to) chains.push(chain(id, item.id, from, to, enter));
        }
    }
    return { ranks, chains };
}

/** What reads nothing stands right above the first that reads it. */
function sink(item: Item, items: readonly Item[], places: ReadonlyMap<string, Place>): void {
    const place = places.get(item.id);
    if (!place || item.reads.some((id) => places.has(id))) return;
    const readers = items.filter(({ reads }) => reads.includes(item.id)).flatMap(({ id }) => places.get(id) ?? []);
    if (readers.length > 0) place.rank = Math.max(0, Math.min(...readers.map(({ rank }) => rank)) - 1);
}

function chain(id: string, to: string, from: Place, end: Place, enter: (place: Place) => void): Chain {
    const places = [from];
    let last = from;
    const join = (next: Place) => {
        last.below.push(next);
        next.above.push(last);
        places.push(next);
        last = next;
    };
    for (let rank = from.rank + 1; rank < end.rank; rank++) {
        const passing = { item: undefined, rank, width: PASSING, centre: 0, above: [], below: [] };
        enter(passing);
        join(passing);
    }
    join(end);
    return { from: id, to, places };
}

/** Orders each rank by the places of its neighbours in the rank before. */
function order(ranks: readonly Place[][], down: boolean): void {
    const at = new Map<Place, number>();
    const note = (rank: readonly Place[]) => {
        for (const [i, place] of rank.entries()) at.set(place, i);
    };
    for (const rank of down ? ranks : [...ranks].reverse()) {
        const wish = new Map(
            rank.map((place, i) => {
                const neighbours = down ? place.above : place.below;
                return [place, mean(neighbours.flatMap((other) => at.get(other) ?? [])) ?? i];
            }),
        );
        rank.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0));
        note(rank);
    }
}

/** Places a rank side by side around the middle. */
function centred(rank: readonly Place[]): void {
    const width = rank.reduce((sum, place) => sum + place.width + GAP_X, -GAP_X);
    let x = -width / 2;
    for (const place of rank) {
        place.centre = x + place.width / 2;
        x += place.width + GAP_X;
    }
}

/**
 * Places a rank as near to its wishes as its order and widths allow: the least sum of squares. Places that would overlap
 * become a block that stands at the mean of their wishes.
 */
function pack(rank: readonly Place[], wish: (place: Place) => number): void {
    const blocks: { sum: number; count: number; members: { place: Place; offset: number }[] }[] = [];
    let offset = 0;
    let before: Place | undefined;
    for (const place of rank) {
        if (before) offset += (before.width + place.width) / 2 + GAP_X;
        before = place;
        const wanted = wish(place) - offset;
        blocks.push({ sum: wanted, count: 1, members: [{ place, offset }] });
        for (;;) {
            const [left, right] = blocks.slice(-2);
            if (!left || !right || left.sum / left.count <= right.sum / right.count) break;
            blocks.splice(-2, 2, {
                sum: left.sum + right.sum,
                count: left.count + right.count,
                members: [...left.members, ...right.members],
            });
        }
    }
    for (const { sum, count, members } of blocks) {
        for (const { place, offset } of members) place.centre = sum / count + offset;
    }
}

function mean(values: readonly number[]): number | undefined {
    if (values.length === 0) return undefined;
    return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function drawn(ranks: readonly Place[][], chains: readonly Chain[]): Layout {
    const all = ranks.flat();
    const left = Math.min(0, ...all.map(({ centre, width }) => centre - width / 2));
    const tops: number[] = [];
    const heights = ranks.map((rank) => Math.max(0, ...rank.map(({ item }) => item?.height ?? 0)));
    let y = 0;
    for (const height of heights) {
        tops.push(y);
        y += height + GAP_Y;
    }
    const top = ({ item, rank }: Place) => {
        const middle = ((heights[rank] ?? 0) - (item?.height ?? 0)) / 2;
        return (tops[rank] ?? 0) + middle;
    };
    const items = all.flatMap((place) => {
        const { item, centre, width } = place;
        return item ? [{ id: item.id, x: centre - left - width / 2, y: top(place), width, height: item.height }] : [];
    });
    const edges = chains.map(({ from, to, places }) => {
        const points = places.map((place, i) => {
            const bottom = i === 0 ? (place.item?.height ?? 0) : 0;
            return { x: place.centre - left, y: top(place) + bottom };
        });
        return { from, to, points };
    });
    const right = Math.max(0, ...all.map(({ centre, width }) => centre + width / 2));
    return { items, edges, width: right - left, height: Math.max(0, y - GAP_Y) };
}

/** A smooth line from top to bottom through the points. */
export function curve(points: Edge["points"]): string {
    const [first, ...rest] = points;
    if (!first) return "";
    let from = first;
    const parts = rest.map((to) => {
        const bend = (to.y - from.y) / 2;
        const part = `C${n(from.x)} ${n(from.y + bend)} ${n(to.x)} ${n(to.y - bend)} ${n(to.x)} ${n(to.y)}`;
        from = to;
        return part;
    });
    return `M${n(first.x)} ${n(first.y)}${parts.join("")}`;
}

function n(x: number): string {
    return String(Math.round(x * 10) / 10);
}
