/** `GET /props` and `GET /health`, as far as the page reads them. */

/** A setting that a request may change, and what the server does where it does not. */
export interface ServerDefault {
    value: number | string | null;
    /** Where the value comes from: the command line, the model, what is built in. */
    from: string;
}

export interface Props {
    build_info: string;
    model: {
        name: string;
        title: string | null;
        architecture: string;
        context_length: number;
        vocab: number;
        weight_bytes: number;
        config: Record<string, unknown>;
    };
    context: number;
    max_tokens: number;
    total_slots: number;
    reasoning_effort?: string | null;
    reasoning_efforts?: string[];
    thinking_budget?: number | null;
    max_tool_call_tokens?: number;
    sampling: Record<string, ServerDefault>;
    chat_template: string | null;
    chat_template_error: string | null;
    chat_template_caps: {
        tools: boolean;
        thinking: { default_on?: boolean } | null;
        effort: { levels: string[] } | null;
    } | null;
    end_tokens: number[];
    backend: string;
    threads: number;
    capabilities: Record<string, boolean | undefined>;
    modalities: { vision: boolean; audio: boolean; image_output?: boolean };
}

export interface Health {
    status: "ok" | "loading" | "draining" | "failed";
    progress?: number | null;
    reason?: string;
    slots_idle?: number;
    slots_processing?: number;
    requests_queued?: number;
    prefill_tok_s?: number | null;
    decode_tok_s?: number | null;
    kv_usage?: number;
}
