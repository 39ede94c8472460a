import { type PointerEvent, useId, useLayoutEffect, useRef, useState } from "react";
import { classes } from "../classes";
import styles from "./LineChart.module.css";
import { nearest, type Point, path, place, runs, ticks } from "./scale";

export interface Series {
    name: string;
    points: readonly Point[];
    /** Which of the colours of charts it has. */
    colour: 1 | 2 | 3;
}

interface LineChartProps {
    title: string;
    series: readonly Series[];
    /** The right end, in milliseconds since 1970, and how much of the time before it is shown. */
    now: number;
    spanMs: number;
    /** A value with its unit. */
    format: (value: number) => string;
    /** Least top of the scale. */
    least?: number;
    /** Said where there are no points at all. */
    empty: string;
}

const HEIGHT = 150;
const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;
/** Points further apart than this are not joined. */
const GAP_MS = 4000;

/** Lines over the last minutes, with a scale and what the pointer is at. */
export function LineChart({ title, series, now, spanMs, format, least = 0, empty }: LineChartProps) {
    const box = useRef<HTMLDivElement>(null);
    const width = useWidth(box);
    const clip = useId();
    const [pointer, setPointer] = useState<number>();
    const from = now - spanMs;
    const shown = series.map((s) => ({ ...s, points: s.points.filter(({ at }) => at >= from && at <= now) }));
    const highest = Math.max(least, ...shown.flatMap((s) => s.points.map(({ value }) => value)));
    const marks = ticks(highest, 3);
    const frame = {
        from,
        to: now,
        top: marks.at(-1) ?? 1,
        width: Math.max(1, width - LEFT - 1),
        height: HEIGHT - BOTTOM - TOP,
    };
    const at = pointer === undefined ? undefined : from + ((pointer - LEFT) / frame.width) * spanMs;
    const move = (event: PointerEvent<HTMLDivElement>) => {
        const x = event.clientX - event.currentTarget.getBoundingClientRect().left;
        setPointer(x >= LEFT ? x : undefined);
    };
    const isEmpty = shown.every((s) => s.points.length === 0);
    return (
        <figure className={styles.chart}>
            <figcaption className={styles.caption}>
                <span className={styles.title}>{title}</span>
                <Legend series={shown} at={at} format={format} />
            </figcaption>
            <div ref={box} className={styles.box} onPointerMove={move} onPointerLeave={() => setPointer(undefined)}>
                <svg width={width} height={HEIGHT} role="img" aria-label={summary(title, shown, format)}>
                    <clipPath id={clip}>
                        <rect x={0} y={-2} width={frame.width} height={frame.height + 3} />
                    </clipPath>
                    <g transform={`translate(${LEFT} ${TOP})`}>
                        {marks.map((mark) => (
                            <g key={mark} transform={`translate(0 ${place({ at: from, value: mark }, frame).y})`}>
                                <line x2={frame.width} className={styles.grid} />
                                <text x={-8} dy="0.32em" className={styles.y}>
                                    {format(mark)}
                                </text>
                            </g>
                        ))}
                        <TimeAxis frame={frame} spanMs={spanMs} />
                        <g clipPath={`url(#${clip})`}>
                            {shown.map((s) =>
                                runs(s.points, GAP_MS).map((run) => (
                                    <path
                                        key={`${s.name}-${run[0]?.at}`}
                                        d={run.length > 1 ? path(run, frame) : dot(run[0], frame)}
                                        className={classes(styles.line, run.length === 1 && styles.dot)}
                                        data-colour={s.colour}
                                    />
                                )),
                            )}
                        </g>
                        {at !== undefined && <Crosshair series={shown} at={at} frame={frame} />}
                    </g>
                </svg>
                {isEmpty && <p className={styles.empty}>{empty}</p>}
            </div>
        </figure>
    );
}

type Frame = Parameters<typeof place>[1];

/** A lone point: a line of no length, which round ends make a dot. */
function dot(point: Point | undefined, frame: Frame): string {
    if (!point) return "";
    const { x, y } = place(point, frame);
    return `M${x} ${y}h0.01`;
}

function summary(title: string, series: readonly Series[], format: (value: number) => string): string {
    const last = series.flatMap((s) => {
        const point = s.points.at(-1);
        return point ? [`${s.name}: ${format(point.value)}`] : [];
    });
    return `${title}. ${last.length > 0 ? `Now ${last.join(", ")}` : "Nothing yet"}`;
}

function TimeAxis({ frame, spanMs }: { frame: Frame; spanMs: number }) {
    const minutes = spanMs / 60_000;
    const every = frame.width < 320 ? minutes / 2 : minutes / 4;
    const marks = Array.from({ length: Math.round(minutes / every) + 1 }, (_, i) => i * every);
    return (
        <g transform={`translate(0 ${frame.height + 15})`}>
            {marks.map((ago) => (
                <text
                    key={ago}
                    x={frame.width * (1 - ago / minutes)}
                    className={styles.x}
                    data-at={ago === 0 ? "end" : ago === minutes ? "start" : "middle"}
                >
                    {ago === 0 ? "now" : `−${ago < 1 ? `${Math.round(ago * 60)} s` : `${Number(ago.toFixed(2))} min`}`}
                </text>
            ))}
        </g>
    );
}

function Legend({ series, at, format }: { series: Series[]; at: number | undefined; format: (v: number) => string }) {
    return (
        <span className={styles.legend}>
            {series.map((s) => {
                const point = at === undefined ? s.points.at(-1) : nearest(s.points, at, GAP_MS);
                return (
                    <span key={s.name} className={styles.key}>
                        <span className={styles.swatch} data-colour={s.colour} aria-hidden />
                        {s.name} <b>{point ? format(point.value) : "–"}</b>
                    </span>
                );
            })}
        </span>
    );
}

function Crosshair({ series, at, frame }: { series: readonly Series[]; at: number; frame: Frame }) {
    const points = series.flatMap((s) => {
        const point = nearest(s.points, at, GAP_MS);
        return point ? [{ ...place(point, frame), colour: s.colour, name: s.name }] : [];
    });
    const x = points[0]?.x;
    if (x === undefined) return null;
    return (
        <g className={styles.cross}>
            <line x1={x} x2={x} y2={frame.height} />
            {points.map((point) => (
                <circle key={point.name} cx={point.x} cy={point.y} r={3.5} data-colour={point.colour} />
            ))}
        </g>
    );
}

/** The width that there is, as it changes. */
function useWidth(ref: React.RefObject<HTMLElement | null>): number {
    const [width, setWidth] = useState(320);
    useLayoutEffect(() => {
        const element = ref.current;
        if (!element) return;
        const observer = new ResizeObserver(() => setWidth(element.clientWidth));
        observer.observe(element);
        setWidth(element.clientWidth);
        return () => observer.disconnect();
    }, [ref]);
    return width;
}
