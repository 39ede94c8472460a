import { ChevronLeft, ChevronRight } from "lucide-react";
import type { Message } from "../db/types";
import { IconButton } from "../ui/Button";
import { show } from "./actions";
import styles from "./Message.module.css";

/** Which of a message's alternatives is shown, and the way to the others. */
export function Siblings({ message, siblings }: { message: Message; siblings: readonly Message[] }) {
    if (siblings.length < 2) return null;
    const at = siblings.findIndex((one) => one.id === message.id);
    const go = (to: number) => {
        const sibling = siblings[to];
        if (sibling) void show(sibling);
    };
    return (
        <fieldset className={styles.siblings}>
            <legend className="visually-hidden">Branches</legend>
            <IconButton
                label="Previous branch"
                icon={ChevronLeft}
                small
                disabled={at <= 0}
                onClick={() => go(at - 1)}
            />
            <span className={styles.place}>
                {at + 1}/{siblings.length}
            </span>
            <IconButton
                label="Next branch"
                icon={ChevronRight}
                small
                disabled={at >= siblings.length - 1}
                onClick={() => go(at + 1)}
            />
        </fieldset>
    );
}
