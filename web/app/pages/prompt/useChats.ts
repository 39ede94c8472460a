import { liveQuery } from "dexie";
import { useEffect, useState } from "react";
import { server } from "../../api/server";
import { messagesOf } from "../../db/conversations";
import { db } from "../../db/database";
import { Tree } from "../../db/tree";
import type { Conversation, Message } from "../../db/types";
import { chat } from "../../protocols/chat";
import { toolsOf } from "../../tools/run";
import { asTemplateTakesIt } from "./conversation";

const MOST = 50;

/** The conversations of this browser, the last that was used first; undefined while they are not known. */
export function useChats(): readonly Conversation[] | undefined {
    const [chats, setChats] = useState<readonly Conversation[]>();
    useEffect(() => {
        const query = liveQuery(() => db.conversations.orderBy("updated").reverse().limit(MOST).toArray());
        const subscription = query.subscribe({ next: setChats, error: console.error });
        return () => subscription.unsubscribe();
    }, []);
    return chats;
}

/** What the model was asked when it gave the last answer of the conversation's shown branch. */
export function useLastQuestion(conversation: Conversation | undefined): Record<string, unknown> | undefined {
    const [body, setBody] = useState<Record<string, unknown>>();
    useEffect(() => {
        if (!conversation) return setBody(undefined);
        const query = liveQuery(() => messagesOf(conversation.id));
        const show = (messages: Message[]) => {
            const path = new Tree(messages).path(conversation.leaf);
            const asked = path.slice(0, path.findLastIndex(({ role }) => role !== "assistant") + 1);
            const { settings } = conversation;
            const { props } = server.get();
            setBody(asTemplateTakesIt(chat.body({ path: asked, settings, tools: toolsOf(settings), props })));
        };
        const subscription = query.subscribe({ next: show, error: console.error });
        return () => subscription.unsubscribe();
    }, [conversation]);
    return body;
}
