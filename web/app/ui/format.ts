/** A number format, made when it is first needed: making one takes the browser milliseconds in which a page comes up. */
function lazily(options: Intl.NumberFormatOptions): (n: number) => string {
    let made: Intl.NumberFormat | undefined;
    return (n) => {
        made ??= new Intl.NumberFormat("en", options);
        return made.format(n);
    };
}

const whole = lazily({ maximumFractionDigits: 0 });
const compact = lazily({ notation: "compact", maximumSignificantDigits: 3 });
const short = lazily({ maximumSignificantDigits: 3 });

export function formatCount(n: number): string {
    return whole(n);
}

/** `1 token`, `2 tokens`. */
export function plural(n: number, one: string, many = `${one}s`): string {
    return `${formatCount(n)} ${n === 1 ? one : many}`;
}

export function formatNumber(x: number): string {
    return short(x);
}

export function formatMs(ms: number): string {
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
    const seconds = Math.round(ms / 1000);
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
    return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function formatBytes(bytes: number): string {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let unit = 0;
    let value = bytes;
    while (value >= 1000 && unit < units.length - 1) {
        value /= 1000;
        unit++;
    }
    return `${short(value)} ${units[unit]}`;
}

/** In the units that memory comes in. */
export function formatMemory(bytes: number): string {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
    return `${short(bytes / 1024 ** power)} ${units[power]}`;
}

/** Three digits that count, with k, M or B for large numbers. */
export function formatFigure(value: number): string {
    return compact(value);
}

/** A part of a whole, 0 to 1. */
export function formatShare(part: number): string {
    return `${(part * 100).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;
}
