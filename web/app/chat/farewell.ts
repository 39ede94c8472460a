/**
 * What an answer under way had when its page was left: a database takes longer than a page that is left has, so its last
 * second goes where it is written at once.
 */

import type { Part } from "../db/types";

const PREFIX = "bantam-answer-";

/** Keeps the parts of this message's answer; in any tab, they can be taken. */
export function keepLast(message: string, parts: readonly Part[]): void {
    try {
        localStorage.setItem(PREFIX + message, JSON.stringify(parts));
    } catch {
        // Too long for this place: what was saved last in the database holds.
    }
}

/** The parts that were kept, once. */
export function takeLast(message: string): Part[] | undefined {
    try {
        const kept = localStorage.getItem(PREFIX + message);
        localStorage.removeItem(PREFIX + message);
        return kept === null ? undefined : (JSON.parse(kept) as Part[]);
    } catch {
        return undefined;
    }
}
