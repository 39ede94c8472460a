import { useSyncExternalStore } from "react";

/** Where the page is: `#/name/rest`. */
export interface Route {
    /** Of a page in `pages.ts`. */
    page: string;
    /** What stands after the page's name, decoded; empty if nothing does. */
    rest: string;
}

const FIRST = "chat";

export function parseHash(hash: string): Route {
    const [page, ...rest] = hash.replace(/^#\/?/, "").split("/");
    return { page: page || FIRST, rest: decoded(rest.join("/")) };
}

function decoded(text: string): string {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

export function href(page: string, rest = ""): string {
    return rest ? `#/${page}/${encodeURIComponent(rest)}` : `#/${page}`;
}

/** `replace` leaves no step to go back to. */
export function navigate(page: string, rest = "", how: "push" | "replace" = "push"): void {
    const to = href(page, rest);
    if (how === "push") {
        location.hash = to;
        return;
    }
    history.replaceState(null, "", to);
    dispatchEvent(new HashChangeEvent("hashchange"));
}

function subscribe(listener: () => void): () => void {
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
}

export function useRoute(): Route {
    const hash = useSyncExternalStore(subscribe, () => location.hash);
    return parseHash(hash);
}
