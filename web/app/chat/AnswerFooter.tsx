import { Pencil, RotateCcw, Trash2 } from "lucide-react";
import { useMemo } from "react";
import { textOf } from "../db/text";
import type { AnswerInfo, Message } from "../db/types";
import { IconButton } from "../ui/Button";
import { CopyButton } from "../ui/CopyButton";
import { formatCount, formatMs, formatNumber, plural } from "../ui/format";
import { remove, retry } from "./actions";
import styles from "./Message.module.css";
import { Siblings } from "./Siblings";

interface AnswerFooterProps {
    message: Message;
    info: AnswerInfo | undefined;
    siblings: readonly Message[];
    onEdit: () => void;
}

/** What an answer took, and what can be done with it. */
export function AnswerFooter({ message, info, siblings, onEdit }: AnswerFooterProps) {
    const figures = useMemo(() => figuresOf(info), [info]);
    return (
        <footer className={styles.footer}>
            <Siblings message={message} siblings={siblings} />
            {figures.length > 0 && (
                <span className={styles.figures} title={info?.model}>
                    {figures.map((figure) => (
                        <span key={figure.name} title={figure.name}>
                            {figure.value}
                        </span>
                    ))}
                </span>
            )}
            <div className={styles.actions}>
                <CopyButton label="Copy the answer" text={() => textOf(message.parts)} />
                <IconButton label="Retry" icon={RotateCcw} small onClick={() => void retry(message)} />
                <IconButton label="Edit the answer" icon={Pencil} small onClick={onEdit} />
                <IconButton label="Delete from here" icon={Trash2} small onClick={() => void remove(message)} />
            </div>
        </footer>
    );
}

/** Below this a speed says more about the network than about the model. */
const SHORTEST_MS = 20;

interface Figure {
    name: string;
    value: string;
}

function figuresOf(info: AnswerInfo | undefined): Figure[] {
    const { usage, times } = info ?? {};
    const figures: Figure[] = [];
    if (usage && times && times.decode >= SHORTEST_MS && usage.output > 1) {
        // The first token is there when the time begins.
        const speed = (usage.output - 1) / (times.decode / 1000);
        figures.push({ name: "Speed of the answer", value: `${formatNumber(speed)} tok/s` });
    }
    if (times) figures.push({ name: "Time to the first token", value: `${formatMs(times.first)} to first` });
    if (usage) {
        figures.push({ name: "Tokens of the answer", value: plural(usage.output, "token") });
        if (usage.prompt > 0) {
            const cached = Math.round((usage.cached / usage.prompt) * 100);
            const name = `${plural(usage.cached, "token")} of the prompt's ${formatCount(usage.prompt)} were cached`;
            figures.push({ name, value: `${cached} % cached` });
        }
    }
    return figures;
}
