const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function formatCount(n: number): string {
    return whole.format(n);
}

/** `1 token`, `2 tokens`. */
export function plural(n: number, one: string, many = `${one}s`): string {
    return `${formatCount(n)} ${n === 1 ? one : many}`;
}

export function formatNumber(x: number): string {
    return short.format(x);
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
    return `${short.format(value)} ${units[unit]}`;
}

/** In the units that memory comes in. */
export function formatMemory(bytes: number): string {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
    return `${short.format(bytes / 1024 ** power)} ${units[power]}`;
}

/** Three digits that count, with k, M or B for large numbers. */
export function formatFigure(value: number): string {
    return compact.format(value);
}

/** A part of a whole, 0 to 1. */
export function formatShare(part: number): string {
    return `${(part * 100).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;
}
