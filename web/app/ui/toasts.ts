import { createStore } from "./store";

export interface Toast {
    id: number;
    text: string;
    tone: "info" | "good" | "bad";
    /** One thing to do about it, such as taking it back. */
    action: { label: string; run: () => void } | undefined;
}

export const toasts = createStore<readonly Toast[]>([]);

const SHOWN_MS = 8000;
let next = 1;

export function toast(text: string, options: Partial<Pick<Toast, "tone" | "action">> = {}): void {
    const id = next++;
    toasts.update((all) => [...all.slice(-3), { id, text, tone: options.tone ?? "info", action: options.action }]);
    setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
    toasts.update((all) => all.filter((toast) => toast.id !== id));
}
