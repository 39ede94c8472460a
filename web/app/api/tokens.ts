import { requestJson } from "./client";

/** How many tokens a text is, as the server's model counts. */
export async function countTokens(text: string, signal?: AbortSignal): Promise<number> {
    if (text === "") return 0;
    const { tokens } = await requestJson<{ tokens: unknown[] }>("/tokenize", {
        body: { content: text, parse_special: false },
        record: false,
        ...(signal && { signal }),
    });
    return tokens.length;
}
