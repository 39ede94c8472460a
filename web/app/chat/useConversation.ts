import { liveQuery } from "dexie";
import { useEffect, useState } from "react";
import { db } from "../db/database";
import { Tree } from "../db/tree";
import type { Conversation, Message } from "../db/types";
import { recover, SAVE_MS } from "./runs";

export interface Shown {
    conversation: Conversation;
    tree: Tree;
    /** The branch that is shown. */
    path: Message[];
}

/** A conversation as it is kept, whoever changes it. `null`: there is none of this id; undefined: not known yet. */
export function useConversation(id: string): Shown | null | undefined {
    const [shown, setShown] = useState<Shown | null>();
    useEffect(() => {
        const known = new Map<string, Message>();
        const query = liveQuery(async () => {
            const [conversation, messages] = await Promise.all([
                db.conversations.get(id),
                db.messages.where({ conversation: id }).toArray(),
            ]);
            return conversation && { conversation, messages };
        });
        const subscription = query.subscribe({
            next: (found) => {
                if (!found) return setShown(null);
                const tree = new Tree(found.messages.map((message) => same(known, message)));
                setShown({ conversation: found.conversation, tree, path: tree.path(found.conversation.leaf) });
            },
            error: (failure) => console.error(failure),
        });
        return () => subscription.unsubscribe();
    }, [id]);
    useEffect(() => watchOthers(id), [id]);
    return shown;
}

/** The message as it was read before, unless it has changed: what is on the page is then known to be the same. */
function same(known: Map<string, Message>, message: Message): Message {
    const before = known.get(message.id);
    if (before?.revision === message.revision) return before;
    known.set(message.id, message);
    return message;
}

/** Ends what tabs that are gone have left, now and for as long as other tabs receive something. */
function watchOthers(id: string): () => void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let there = true;
    const look = async () => {
        const elsewhere = await recover(id);
        if (elsewhere && there) timer = setTimeout(() => void look(), 2 * SAVE_MS);
    };
    void look();
    return () => {
        there = false;
        clearTimeout(timer);
    };
}
