import { expect, it } from "vitest";
import { formatFigure, formatMemory, formatMs, formatShare } from "./format";

it("tells memory with three digits", () => {
    const sizes = [0, 1000, 1024, 15.04 * 1024, 1.5 * 2 ** 30, 2 ** 51];
    expect(sizes.map(formatMemory)).toEqual(["0 B", "1,000 B", "1 KiB", "15 KiB", "1.5 GiB", "2,050 TiB"]);
});

it("tells times in the unit that fits", () => {
    const times = [0.2, 999, 1500, 61_000, 3_700_000];
    expect(times.map(formatMs)).toEqual(["0 ms", "999 ms", "1.5 s", "1 min 1 s", "1 h 1 min"]);
});

it("tells figures shortly", () => {
    const figures = [1, 1.234, 12.34, 123.4, 12_345, 2_500_000, 4.02e9];
    expect(figures.map(formatFigure)).toEqual(["1", "1.23", "12.3", "123", "12.3K", "2.5M", "4.02B"]);
    expect([0, 0.034, 0.34, 1].map(formatShare)).toEqual(["0 %", "3.4 %", "34 %", "100 %"]);
});
