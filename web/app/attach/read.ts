/** Files become texts or images in the browser; nothing is uploaded. The parsers are loaded when a file first wants them. */

import type { FilePart, ImagePart } from "../db/types";
import { AttachError } from "./problem";

/** Bytes of a file beyond which it is not read. */
export const LARGEST = 50 * 1024 * 1024;

/** Pictures of points; SVG is text, and read as such. */
const IMAGES = /^image\/(?!svg)/;
const WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
const EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

export interface ReadOptions {
    /** Whether the model sees. */
    vision: boolean;
}

export async function readAttachment(file: File, { vision }: ReadOptions): Promise<FilePart | ImagePart> {
    if (file.size > LARGEST) {
        throw new AttachError(`${file.name} is larger than ${LARGEST / 1024 / 1024} MB. Attach a part of it.`);
    }
    const name = file.name.toLowerCase();
    if (IMAGES.test(file.type)) {
        if (!vision) {
            throw new AttachError(
                `${file.name} is an image, and the model that is loaded sees none. Describe it in words, or attach its text.`,
            );
        }
        const { readImage } = await import("./image");
        return readImage(file);
    }
    const text = (await extract(file, name)).replace(/\r\n?/g, "\n").trim();
    if (text === "") throw new AttachError(`${file.name} has no text in it.`);
    return { kind: "file", name: file.name, size: file.size, text };
}

async function extract(file: File, name: string): Promise<string> {
    try {
        if (file.type === "application/pdf" || name.endsWith(".pdf")) {
            const { pdfText } = await import("./pdf");
            return await pdfText(await file.arrayBuffer());
        }
        if (file.type === WORD || name.endsWith(".docx")) return await inWorker("docx", await file.arrayBuffer());
        if (file.type === EXCEL || name.endsWith(".xlsx")) return await inWorker("xlsx", await file.arrayBuffer());
    } catch (failure) {
        const why = failure instanceof Error ? failure.message : String(failure);
        throw new AttachError(`${file.name} could not be read: ${why}`);
    }
    return decode(file);
}

/** A file of text in UTF-8, or UTF-16 with a mark. What is neither has bytes that no text has. */
async function decode(file: File): Promise<string> {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const utf16 =
        bytes[0] === 0xff && bytes[1] === 0xfe
            ? "utf-16le"
            : bytes[0] === 0xfe && bytes[1] === 0xff
              ? "utf-16be"
              : undefined;
    if (!utf16 && bytes.subarray(0, 65536).includes(0)) {
        throw new AttachError(
            `${file.name} is of a kind that this page cannot read. Attach text, code, PDF, Word or Excel.`,
        );
    }
    try {
        return new TextDecoder(utf16 ?? "utf-8", { fatal: true }).decode(bytes);
    } catch {
        // Old files of one byte a character are still text.
        return new TextDecoder("windows-1252").decode(bytes);
    }
}

export interface ToExtractor {
    kind: "docx" | "xlsx";
    bytes: ArrayBuffer;
}

export type FromExtractor = { text: string } | { problem: string };

/** One worker for one file: its memory goes with it. */
function inWorker(kind: ToExtractor["kind"], bytes: ArrayBuffer): Promise<string> {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "attachments" });
    return new Promise<string>((resolve, reject) => {
        worker.onmessage = ({ data }: MessageEvent<FromExtractor>) =>
            "text" in data ? resolve(data.text) : reject(new Error(data.problem));
        worker.onerror = (event) => reject(new Error(event.message || "its parser could not be loaded"));
        worker.postMessage({ kind, bytes } satisfies ToExtractor, [bytes]);
    }).finally(() => worker.terminate());
}
