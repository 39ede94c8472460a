import { useLiveQuery } from "dexie-react-hooks";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import { db } from "../db/database";
import { newId } from "../db/ids";
import type { Prompt } from "../db/types";
import { Button, IconButton } from "../ui/Button";
import { TextField } from "../ui/Field";
import { toast } from "../ui/toasts";
import styles from "./Settings.module.css";

interface PromptLibraryProps {
    /** The system prompt as it is. */
    text: string;
    onPick: (text: string) => void;
}

/** System prompts kept under names. */
export function PromptLibrary({ text, onPick }: PromptLibraryProps) {
    const prompts = useLiveQuery(() => db.prompts.orderBy("name").toArray(), []);
    const [name, setName] = useState("");
    const keep = async () => {
        const given = name.trim();
        const same = prompts?.find((prompt) => prompt.name === given);
        await db.prompts.put({ id: same?.id ?? newId(), name: given, text, updated: Date.now() });
        setName("");
    };
    return (
        <section className="stack" aria-label="Prompt library">
            <h3 className={styles.group}>Library</h3>
            {prompts && prompts.length > 0 && (
                <ul className={styles.prompts}>
                    {prompts.map((prompt) => (
                        <li key={prompt.id}>
                            <button type="button" title={prompt.text} onClick={() => onPick(prompt.text)}>
                                {prompt.name}
                            </button>
                            <IconButton
                                label={`Delete ${prompt.name}`}
                                icon={Trash2}
                                small
                                onClick={() => void remove(prompt)}
                            />
                        </li>
                    ))}
                </ul>
            )}
            <form
                className={styles.keep}
                onSubmit={(event) => {
                    event.preventDefault();
                    void keep();
                }}
            >
                <TextField
                    label="Name to keep this prompt under"
                    labelHidden
                    placeholder="Keep this prompt as…"
                    value={name}
                    onChange={(event) => setName(event.target.value)}
                />
                <Button type="submit" disabled={name.trim() === "" || text.trim() === ""}>
                    Keep
                </Button>
            </form>
        </section>
    );
}

async function remove(prompt: Prompt): Promise<void> {
    await db.prompts.delete(prompt.id);
    toast(`Deleted “${prompt.name}”.`, { action: { label: "Undo", run: () => void db.prompts.put(prompt) } });
}
