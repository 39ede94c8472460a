/** The API key: kept for this tab only, asked for when the server wants one. */

import { createStore } from "../ui/store";

const NAME = "bantam-api-key";

function stored(): string {
    try {
        return sessionStorage.getItem(NAME) ?? "";
    } catch {
        return "";
    }
}

let key = stored();

interface Question {
    /** Whether a key was given and refused. */
    refused: boolean;
}

/** The question that the dialog shows, if there is one. */
export const keyQuestion = createStore<Question | undefined>(undefined);

let waiting: { promise: Promise<boolean>; answer: (given: boolean) => void } | undefined;

export function apiKey(): string {
    return key;
}

/** Asks for another key than `used`. Resolves to false if the person has none. All who ask at once wait for one answer. */
export function askForKey(used: string): Promise<boolean> {
    if (key !== used) return Promise.resolve(true);
    if (!waiting) {
        let answer: (given: boolean) => void = () => undefined;
        const promise = new Promise<boolean>((resolve) => {
            answer = resolve;
        });
        waiting = { promise, answer };
        keyQuestion.set({ refused: used !== "" });
    }
    return waiting.promise;
}

/** The dialog's answer; undefined if it was dismissed. */
export function giveKey(given: string | undefined): void {
    if (given !== undefined) setKey(given);
    keyQuestion.set(undefined);
    const answered = waiting;
    waiting = undefined;
    answered?.answer(given !== undefined);
}

export function setKey(given: string): void {
    key = given.trim();
    try {
        if (key) sessionStorage.setItem(NAME, key);
        else sessionStorage.removeItem(NAME);
    } catch {
        // Without storage the key lasts as long as the page.
    }
}
