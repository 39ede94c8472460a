import Dexie, { type EntityTable } from "dexie";
import type { Conversation, Message, PartialAnswer, Prompt } from "./types";

class Database extends Dexie {
    declare conversations: EntityTable<Conversation, "id">;
    declare messages: EntityTable<Message, "id">;
    declare partials: EntityTable<PartialAnswer, "id">;
    declare prompts: EntityTable<Prompt, "id">;

    constructor() {
        super("bantam");
        this.version(1).stores({
            conversations: "id, updated",
            messages: "id, conversation",
            partials: "id, conversation",
            prompts: "id, name",
        });
    }
}

/** All that is kept, in this browser alone. Changes are seen by every tab. */
export const db = new Database();
