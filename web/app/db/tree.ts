/** A conversation is a tree of messages; what is shown of it is the path from its root to one leaf. */

import type { Message } from "./types";

export class Tree {
    private readonly byId = new Map<string, Message>();
    private readonly byParent = new Map<string | null, Message[]>();

    constructor(messages: readonly Message[]) {
        const sorted = [...messages].sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
        for (const message of sorted) this.byId.set(message.id, message);
        for (const message of sorted) {
            // A message whose parent is gone begins a branch of its own.
            const parent = message.parent !== null && this.byId.has(message.parent) ? message.parent : null;
            const siblings = this.byParent.get(parent);
            if (siblings) siblings.push(message);
            else this.byParent.set(parent, [message]);
        }
    }

    get(id: string | null): Message | undefined {
        return id === null ? undefined : this.byId.get(id);
    }

    /** In the order in which they came. */
    children(parent: string | null): readonly Message[] {
        return this.byParent.get(parent) ?? [];
    }

    /** The message and its alternatives. */
    siblings(message: Message): readonly Message[] {
        const parent = message.parent !== null && this.byId.has(message.parent) ? message.parent : null;
        return this.children(parent);
    }

    /** From the root to this leaf; where there is no such leaf, to the newest. */
    path(leaf: string | null): Message[] {
        const path: Message[] = [];
        const seen = new Set<string>();
        let at = this.get(leaf) ?? this.get(this.leafUnder(null));
        while (at && !seen.has(at.id)) {
            seen.add(at.id);
            path.push(at);
            at = this.get(at.parent);
        }
        return path.reverse();
    }

    /** The end of the newest branch below this message; itself, if nothing follows it. */
    leafUnder(id: string | null): string | null {
        const seen = new Set<string>();
        let at = id;
        for (;;) {
            const next = this.children(at).at(-1);
            if (!next || seen.has(next.id)) return at;
            seen.add(next.id);
            at = next.id;
        }
    }
}
