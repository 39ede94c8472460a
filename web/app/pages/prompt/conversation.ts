/** The conversation whose prompt is looked at. */

export interface Message {
    /** Of this page alone, so that editors stay with their messages. */
    key: number;
    role: string;
    content: string;
}

export const roles = ["system", "user", "assistant", "tool"] as const;

export interface Draft {
    messages: readonly Message[];
    /** JSON, or nothing. */
    tools: string;
    /** Variables of the template as JSON, or nothing. */
    variables: string;
    effort: string;
}

export const first: Draft = {
    messages: [
        { key: 1, role: "system", content: "You are a helpful assistant." },
        { key: 2, role: "user", content: "Which came first?" },
    ],
    tools: "",
    variables: "",
    effort: "",
};

/** The request's body, or what of it is wrong by the field's name. */
export function asked(
    draft: Draft,
): { body: Record<string, unknown> } | { wrong: Partial<Record<keyof Draft, string>> } {
    const wrong: Partial<Record<keyof Draft, string>> = {};
    const json = (field: "tools" | "variables", is: (value: unknown) => boolean, hint: string) => {
        if (draft[field].trim() === "") return undefined;
        try {
            const value: unknown = JSON.parse(draft[field]);
            if (is(value)) return value;
            wrong[field] = hint;
        } catch (failure) {
            wrong[field] = `${hint} ${failure instanceof Error ? failure.message : ""}`;
        }
        return undefined;
    };
    const tools = json("tools", Array.isArray, "A JSON array of tools.");
    const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);
    const variables = json("variables", isObject, "A JSON object.");
    if (Object.keys(wrong).length > 0) return { wrong };
    const body: Record<string, unknown> = {
        messages: draft.messages.map(({ role, content }) =>
            role === "tool" ? { role, content, tool_call_id: "call" } : { role, content },
        ),
        with_pieces: true,
    };
    if (tools) body.tools = tools;
    if (variables) body.chat_template_kwargs = variables;
    if (draft.effort) body.reasoning_effort = draft.effort;
    return { body };
}

/** What of a chat request makes its prompt. */
export function asTemplateTakesIt(request: Record<string, unknown>): Record<string, unknown> {
    const kept = ["messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort"];
    const body = Object.fromEntries(Object.entries(request).filter(([name]) => kept.includes(name)));
    return { ...body, with_pieces: true };
}
