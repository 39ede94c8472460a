/** Reads documents away from the page. */

import type { FromExtractor, ToExtractor } from "./read";

self.onmessage = async ({ data }: MessageEvent<ToExtractor>) => {
    const answer = (told: FromExtractor) => postMessage(told);
    try {
        answer({ text: await extract(data) });
    } catch (failure) {
        answer({ problem: failure instanceof Error ? failure.message : String(failure) });
    }
};

async function extract({ kind, bytes }: ToExtractor): Promise<string> {
    if (kind === "docx") return (await import("./docx")).docxText(bytes);
    return (await import("./sheet")).sheetText(bytes);
}
