/** PDF: the text of each page, in the order in which it stands there. */

import { GlobalWorkerOptions, getDocument } from "pdfjs-dist";
import workerUrl from "pdfjs-dist/build/pdf.worker.min.mjs?url";

GlobalWorkerOptions.workerSrc = workerUrl;

interface Item {
    str: string;
    hasEOL: boolean;
    transform: number[];
    height: number;
}

export async function pdfText(bytes: ArrayBuffer): Promise<string> {
    const task = getDocument({ data: bytes, isEvalSupported: false, useWasm: false, disableFontFace: true });
    try {
        const document = await task.promise;
        const pages: string[] = [];
        for (let number = 1; number <= document.numPages; number++) {
            const page = await document.getPage(number);
            const { items } = await page.getTextContent();
            pages.push(pageText(items.filter((item): item is typeof item & Item => "str" in item)));
            page.cleanup();
        }
        return pages.filter(Boolean).join("\n\n");
    } finally {
        await task.destroy();
    }
}

/** Lines end where the PDF says so; a gap above a line begins a paragraph. */
function pageText(items: readonly Item[]): string {
    let text = "";
    let last: number | undefined;
    for (const item of items) {
        const y = item.transform[5] ?? 0;
        if (last !== undefined && text.endsWith("\n") && item.height > 0 && last - y > item.height * 1.8) text += "\n";
        text += item.str;
        if (item.hasEOL) text += "\n";
        if (item.height > 0) last = y;
    }
    return text.trim();
}
