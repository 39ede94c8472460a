const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
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
    return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
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
