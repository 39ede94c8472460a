import { useState } from "react";

/** Which token is looked at. */
export interface Pointed {
    at: number | undefined;
    /** Whether it was chosen, and stays when the pointer leaves. */
    pinned: boolean;
    hover: (index: number | undefined) => void;
    choose: (index: number | undefined) => void;
    /** Chooses one, or lets the chosen one go. */
    toggle: (index: number | undefined) => void;
}

/** The token that was chosen, else the one under the pointer. */
export function usePointed(count: number): Pointed {
    const [hovered, hover] = useState<number>();
    const [chosen, choose] = useState<number>();
    const pinned = chosen !== undefined && chosen < count;
    const at = pinned ? chosen : hovered;
    return { at, pinned, hover, choose, toggle: (index) => choose(index === chosen ? undefined : index) };
}
