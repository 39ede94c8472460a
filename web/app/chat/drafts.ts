/** What is written and not sent, by conversation; it survives a reload of the tab, but for attachments. */

import type { FilePart, ImagePart } from "../db/types";

export type Attachment = FilePart | ImagePart;

export interface Draft {
    text: string;
    attachments: readonly Attachment[];
}

const PREFIX = "bantam-draft-";
const attached = new Map<string, readonly Attachment[]>();

export function loadDraft(key: string): Draft {
    let text = "";
    try {
        text = sessionStorage.getItem(PREFIX + key) ?? "";
    } catch {
        // Without storage a draft lasts as long as its field.
    }
    return { text, attachments: attached.get(key) ?? [] };
}

export function keepDraft(key: string, { text, attachments }: Draft): void {
    if (attachments.length > 0) attached.set(key, attachments);
    else attached.delete(key);
    try {
        if (text) sessionStorage.setItem(PREFIX + key, text);
        else sessionStorage.removeItem(PREFIX + key);
    } catch {
        // As above.
    }
}
