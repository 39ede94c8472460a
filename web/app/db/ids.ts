/** A name that nothing else has. `crypto.randomUUID` is there only on secure origins. */
export function newId(): string {
    const bytes = crypto.getRandomValues(new Uint8Array(12));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const TAB = "bantam-tab";

/** Name of this tab; it stays when the page is loaded again. */
export function tabId(): string {
    try {
        const known = sessionStorage.getItem(TAB) ?? newId();
        sessionStorage.setItem(TAB, known);
        return known;
    } catch {
        return "only";
    }
}
