/** What the server tells of its own parts, as far as the page reads it. */

export type SlotState = "idle" | "waiting" | "prefill" | "decode" | "blocked";

/** One of `GET /slots`. */
export interface Slot {
    id: number;
    /** Number of the request that it serves. */
    id_task: number | null;
    n_ctx: number;
    state: SlotState;
    prompt_tokens: number;
    /** Of these, computed or found in the cache so far. */
    prompt_done: number;
    cached_tokens: number;
    miss: { at: number; known: number; why: string } | null;
    generated: number;
    waits_for: number | null;
    shares_with: number | null;
    in_slot_ms: number | null;
    decoding_ms: number | null;
}

/** One of `GET /queue`. */
export interface Queued {
    id_task: number;
    prompt_tokens: number;
    waiting_ms: number;
}

/** `GET /memory`. */
export interface Memory {
    ledger: {
        total_bytes: number | null;
        held_bytes: number;
        free_bytes: number | null;
        entries: { owner: string; what: string; bytes: number }[];
    };
    state: {
        budget_bytes: number;
        held_bytes: number;
        cached_bytes: number;
        pages_held: number;
        pages_cached: number;
    };
    /** The device that the model lies on, if it does not lie in the host's memory. */
    device?: {
        index: number;
        name: string;
        total_bytes: number;
        /** Free before the model was loaded. */
        available_bytes: number;
        free_bytes: number;
        entries: { owner: string; what: string; bytes: number }[];
    } | null;
    machine: { total_bytes: number | null; available_bytes: number | null; process_bytes: number | null };
    cache_file_bytes: number | null;
    stored_responses_bytes: number;
}

/** `GET /actors`: the one at the top. */
export interface Actor {
    name: string;
    state: "running" | "stopped";
    /** How often it was started again, alone or with others. */
    restarts: number;
    /** How often it was the one that failed. */
    failures: number;
    last_failure: string | null;
    children: Actor[];
}
