import { type FormEvent, useState } from "react";
import { giveKey, keyQuestion } from "../api/key";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { TextField } from "../ui/Field";
import { useStore } from "../ui/store";

/** Asks for the API key when the server wants one. */
export function KeyDialog() {
    const question = useStore(keyQuestion);
    return question && <Form refused={question.refused} />;
}

function Form({ refused }: { refused: boolean }) {
    const [key, setKey] = useState("");
    const submit = (event: FormEvent) => {
        event.preventDefault();
        if (key.trim()) giveKey(key);
    };
    return (
        <Dialog title="API key" onClose={() => giveKey(undefined)}>
            <form onSubmit={submit} className="stack">
                <TextField
                    label="This server wants a key"
                    type="password"
                    autoComplete="off"
                    data-first
                    value={key}
                    onChange={(event) => setKey(event.target.value)}
                    error={refused ? "The server did not take the last key." : undefined}
                    hint="One that it was started with (--api-key). It is kept in this tab until you close it."
                />
                <div className="row end">
                    <Button look="primary" type="submit" disabled={!key.trim()}>
                        Use key
                    </Button>
                </div>
            </form>
        </Dialog>
    );
}
