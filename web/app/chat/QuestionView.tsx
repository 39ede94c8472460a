import { FileText, Pencil, Trash2 } from "lucide-react";
import { memo, useState } from "react";
import { textOf } from "../db/text";
import type { FilePart, ImagePart, Message } from "../db/types";
import { Markdown } from "../markdown/Markdown";
import { Button, IconButton } from "../ui/Button";
import { CopyButton } from "../ui/CopyButton";
import { Dialog } from "../ui/Dialog";
import { formatBytes, plural } from "../ui/format";
import { edit, remove } from "./actions";
import { EditForm } from "./EditForm";
import styles from "./Message.module.css";
import { Siblings } from "./Siblings";

/** What a person said. */
export const QuestionView = memo(function QuestionView({
    message,
    siblings,
}: {
    message: Message;
    siblings: readonly Message[];
}) {
    const [editing, setEditing] = useState(false);
    const text = textOf(message.parts);
    if (editing) {
        const save = (text: string) => {
            const others = message.parts.filter((part) => part.kind !== "text");
            void edit(message, [...others, { kind: "text", text }]);
            setEditing(false);
        };
        return (
            <EditForm
                label="Edit the message"
                text={text}
                action="Send as a branch"
                onSave={save}
                onCancel={() => setEditing(false)}
            />
        );
    }
    return (
        <article className={styles.question} aria-label="You">
            <h2 className="visually-hidden">You</h2>
            <Attached message={message} />
            {text && (
                <div className={styles.bubble}>
                    <Markdown text={text} />
                </div>
            )}
            <footer className={styles.footer}>
                <Siblings message={message} siblings={siblings} />
                <div className={styles.actions}>
                    <CopyButton label="Copy the message" text={() => text} />
                    <IconButton label="Edit the message" icon={Pencil} small onClick={() => setEditing(true)} />
                    <IconButton label="Delete from here" icon={Trash2} small onClick={() => void remove(message)} />
                </div>
            </footer>
        </article>
    );
});

function Attached({ message }: { message: Message }) {
    const [shown, setShown] = useState<FilePart | ImagePart>();
    const files = message.parts.filter((part) => part.kind === "file");
    const images = message.parts.filter((part) => part.kind === "image");
    if (files.length + images.length === 0) return null;
    const close = () => setShown(undefined);
    return (
        <div className={styles.attached}>
            {images.map((image, index) => (
                <button
                    // biome-ignore lint/suspicious/noArrayIndexKey: parts of a message keep their places.
                    key={index}
                    type="button"
                    className={styles.thumbnail}
                    onClick={() => setShown(image)}
                >
                    <img src={image.url} alt={image.name} />
                </button>
            ))}
            {files.map((file, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: as above.
                <Button key={index} icon={FileText} onClick={() => setShown(file)}>
                    {file.name}
                    <span className="muted">{formatBytes(file.size)}</span>
                </Button>
            ))}
            {shown?.kind === "image" && (
                <Dialog title={shown.name} shape="wide" onClose={close}>
                    <img src={shown.url} alt={shown.name} className={styles.image} />
                </Dialog>
            )}
            {shown?.kind === "file" && (
                <Dialog title={shown.name} shape="wide" onClose={close}>
                    <p className="muted">
                        {plural(shown.text.length, "character")} as the model reads them
                        {shown.tokens !== undefined && `, ${plural(shown.tokens, "token")}`}
                    </p>
                    <pre className={styles.filetext}>{shown.text}</pre>
                </Dialog>
            )}
        </div>
    );
}
