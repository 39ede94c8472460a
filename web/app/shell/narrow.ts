import { useSyncExternalStore } from "react";

const query = matchMedia("(max-width: 820px)");

function subscribe(listener: () => void): () => void {
    query.addEventListener("change", listener);
    return () => query.removeEventListener("change", listener);
}

/** Whether there is too little room for the sidebar beside the page. */
export function useNarrow(): boolean {
    return useSyncExternalStore(subscribe, () => query.matches);
}
