/** Scales of charts: round steps, and lines that break where nothing is known. */

/** A step of 1, 2, 2.5 or 5 times a power of ten that cuts `span` into at most `most` parts. */
export function niceStep(span: number, most: number): number {
    if (!(span > 0) || !Number.isFinite(span)) return 1;
    const rough = span / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const factor = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9)) ?? 10;
    return factor * power;
}

/** Ticks from zero to at least `top`. */
export function ticks(top: number, most: number): number[] {
    const step = niceStep(top > 0 ? top : 1, most);
    const count = Math.max(1, Math.ceil((top > 0 ? top : 1) / step - 1e-9));
    // Multiplied, not added up, so that 0.1 three times is 0.3.
    return Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

export interface Point {
    /** Milliseconds since 1970. */
    at: number;
    value: number;
}

export interface Frame {
    from: number;
    to: number;
    top: number;
    width: number;
    height: number;
}

/** Where a point lies. */
export function place({ at, value }: Point, { from, to, top, width, height }: Frame): { x: number; y: number } {
    return { x: ((at - from) / (to - from)) * width, y: height - (value / top) * height };
}

/** The runs of points that are no more than `gap` milliseconds apart. */
export function runs(points: readonly Point[], gap: number): Point[][] {
    const all: Point[][] = [];
    let last: Point | undefined;
    for (const point of points) {
        const run = all.at(-1);
        if (run && last && point.at - last.at <= gap) run.push(point);
        else all.push([point]);
        last = point;
    }
    return all;
}

/** An SVG path through the points. */
export function path(points: readonly Point[], frame: Frame): string {
    const at = points.map((point) => place(point, frame)).map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`);
    return at.length > 0 ? `M${at.join("L")}` : "";
}

/** The point that is nearest to a moment; undefined where none is within `most` milliseconds. */
export function nearest(points: readonly Point[], at: number, most: number): Point | undefined {
    let best: Point | undefined;
    for (const point of points) {
        if (!best || Math.abs(point.at - at) < Math.abs(best.at - at)) best = point;
    }
    return best && Math.abs(best.at - at) <= most ? best : undefined;
}
