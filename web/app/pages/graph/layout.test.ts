import { expect, it } from "vitest";
import { curve, type Item, layout } from "./layout";

const item = (id: string, ...reads: string[]): Item => ({ id, reads, width: 100, height: 40 });

/** Random graphs, always the same. */
function random(seed: number, count: number): Item[] {
    let state = seed;
    const next = (below: number) => {
        state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
        return Math.floor((state / 2_147_483_648) * below);
    };
    return Array.from({ length: count }, (_, i) => {
        const reads = Array.from({ length: i === 0 ? 0 : next(4) }, () => String(next(i)));
        return { ...item(String(i), ...reads), width: 60 + next(80) };
    });
}

it("puts everything below what it reads, and nothing onto anything else", () => {
    for (let seed = 1; seed <= 40; seed++) {
        const items = random(seed, 40);
        const { items: placed, edges, width, height } = layout(items);
        const at = new Map(placed.map((p) => [p.id, p]));
        const goesDown = edges.filter(({ from, to, points }) => {
            const [a, b] = [at.get(from), at.get(to)];
            const isBelow = a && b && a.y + a.height < b.y;
            return isBelow && points.every((point, i) => i === 0 || point.y > (points[i - 1]?.y ?? 0));
        });
        const isInside = placed.filter(
            ({ x, y, ...size }) => x >= -0.01 && x + size.width <= width + 0.01 && y >= 0 && y + size.height <= height,
        );
        const overlap = placed.filter((a) =>
            placed.some((b) => a !== b && a.y === b.y && a.x < b.x + b.width - 0.01 && b.x < a.x + a.width - 0.01),
        );
        expect([placed.length, isInside.length, overlap.length]).toEqual([items.length, items.length, 0]);
        expect(goesDown.length).toBe(edges.length);
    }
});

it("draws a chain as a straight line", () => {
    const { items, edges, width } = layout([item("a"), item("b", "a"), item("c", "b")]);
    expect(new Set(items.map(({ x }) => x)).size).toBe(1);
    expect([width, edges.length]).toEqual([100, 2]);
});

it("puts what is read from outside right above what reads it", () => {
    const { items } = layout([item("in"), item("late"), item("a", "in"), item("b", "a"), item("c", "b", "late")]);
    const y = (id: string) => items.find((p) => p.id === id)?.y;
    expect(y("late")).toBe(y("b"));
});

it("is nothing for nothing", () => {
    expect(layout([])).toEqual({ items: [], edges: [], width: 0, height: 0 });
    expect(curve([])).toBe("");
    expect(
        curve([
            { x: 0, y: 0 },
            { x: 10, y: 20 },
        ]),
    ).toBe("M0 0C0 10 10 10 10 20");
});
