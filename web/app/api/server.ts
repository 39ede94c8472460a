/** How the server is: asked again and again, so that its end and its return are seen. */

import { useEffect } from "react";
import { createStore, useStore } from "../ui/store";
import { requestJson } from "./client";
import { type ApiError, asApiError } from "./errors";
import type { Health, Props } from "./props";

export type ServerPhase = "connecting" | "ok" | "loading" | "draining" | "failed" | "unreachable" | "locked";

export interface ServerState {
    phase: ServerPhase;
    health: Health | undefined;
    /** The last that were told; they stay while the server is away. */
    props: Props | undefined;
    /** Why the phase is not `ok`. */
    reason: string | undefined;
    /** Goes up each time that the server comes back. */
    epoch: number;
}

export const server = createStore<ServerState>({
    phase: "connecting",
    health: undefined,
    props: undefined,
    reason: undefined,
    epoch: 0,
});

const WELL_MS = 5000;
const AWAY_MS = 1000;

let timer: ReturnType<typeof setTimeout> | undefined;
let users = 0;
let asking = false;

async function poll(): Promise<void> {
    if (asking) return;
    asking = true;
    try {
        await ask();
    } finally {
        asking = false;
        clearTimeout(timer);
        if (users > 0) timer = setTimeout(() => void poll(), server.get().phase === "ok" ? WELL_MS : AWAY_MS);
    }
}

async function ask(): Promise<void> {
    const before = server.get();
    try {
        const health = await requestJson<Health>("/health", { record: false });
        const fresh = before.phase !== "ok" || !before.props;
        const props = fresh ? await requestJson<Props>("/props", { record: false }) : before.props;
        const epoch = before.phase === "ok" ? before.epoch : before.epoch + 1;
        server.set({ phase: "ok", health, props, reason: undefined, epoch });
    } catch (failure) {
        const error = asApiError(failure);
        server.set({ ...before, ...(await whyNot(error)), health: undefined });
    }
}

async function whyNot(error: ApiError): Promise<{ phase: ServerPhase; reason: string }> {
    if (error.status === 401) return { phase: "locked", reason: error.message };
    if (error.status !== 503) return { phase: "unreachable", reason: error.message };
    // The body of a server that is not ready tells why; errors keep only what all of them have.
    const response = await fetch("/health", { cache: "no-store" }).catch(() => undefined);
    const health = (await response?.json().catch(() => undefined)) as Health | undefined;
    switch (health?.status) {
        case "loading":
            return { phase: "loading", reason: loading(health.progress) };
        case "draining":
            return { phase: "draining", reason: "The server is ending; it finishes what it has." };
        case "failed":
            return { phase: "failed", reason: health.reason ?? "The model could not be loaded." };
        default:
            return { phase: "unreachable", reason: error.message };
    }
}

function loading(part: number | null | undefined): string {
    return typeof part === "number"
        ? `The model is being loaded: ${Math.round(part * 100)} %.`
        : "The model is being loaded.";
}

/** Asks at once, as when a request failed and the server may be gone. */
export function checkServer(): void {
    void poll();
}

/** Asks for the settings again with the next look. */
export function refreshProps(): void {
    server.update((state) => ({ ...state, props: undefined }));
    void poll();
}

/** Keeps asking while the component is there. */
export function useServerPolling(): void {
    useEffect(() => {
        users++;
        void poll();
        const seen = () => document.visibilityState === "visible" && void poll();
        document.addEventListener("visibilitychange", seen);
        return () => {
            users--;
            clearTimeout(timer);
            document.removeEventListener("visibilitychange", seen);
        };
    }, []);
}

export function useServer(): ServerState {
    return useStore(server);
}
