import { describe, expect, it } from "vitest";
import { nearest, niceStep, path, place, runs, ticks } from "./scale";

describe("scales", () => {
    it("have round steps", () => {
        expect([1, 7, 30, 99, 0.3].map((span) => niceStep(span, 4))).toEqual([0.25, 2, 10, 25, 0.1]);
        expect([0, -1, Number.NaN, Number.POSITIVE_INFINITY].map((span) => niceStep(span, 4))).toEqual([1, 1, 1, 1]);
    });

    it("reach from zero to the top or above, whatever the top is", () => {
        for (let top = 1e-4; top < 1e9; top *= 1.37) {
            const all = ticks(top, 4);
            expect(all[0]).toBe(0);
            expect(all.at(-1)).toBeGreaterThanOrEqual(top * (1 - 1e-9));
            expect(all.length).toBeLessThanOrEqual(6);
        }
        expect(ticks(0.3, 3)).toEqual([0, 0.1, 0.2, 0.3]);
        expect(ticks(0, 4)).toEqual([0, 0.25, 0.5, 0.75, 1]);
    });
});

describe("lines", () => {
    const frame = { from: 0, to: 100, top: 10, width: 200, height: 50 };
    const points = [0, 10, 60, 70].map((at) => ({ at, value: at / 10 }));

    it("go through their points", () => {
        expect(place({ at: 50, value: 5 }, frame)).toEqual({ x: 100, y: 25 });
        expect(path(points.slice(0, 2), frame)).toBe("M0.0 50.0L20.0 45.0");
        expect(path([], frame)).toBe("");
    });

    it("break where nothing is known", () => {
        expect(runs(points, 20).map((run) => run.length)).toEqual([2, 2]);
        expect(runs([], 20)).toEqual([]);
    });

    it("have a point near the pointer, or none", () => {
        expect(nearest(points, 64, 10)?.at).toBe(60);
        expect(nearest(points, 35, 10)).toBeUndefined();
    });
});
