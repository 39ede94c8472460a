import { X } from "lucide-react";
import { type ReactNode, useEffect, useId, useRef } from "react";
import { IconButton } from "./Button";
import { classes } from "./classes";
import styles from "./Dialog.module.css";

interface DialogProps {
    title: string;
    onClose: () => void;
    children: ReactNode;
    /** Buttons at the end. */
    footer?: ReactNode;
    /** `panel` slides in from the right and takes the full height. */
    shape?: "box" | "wide" | "panel";
}

/**
 * A modal dialog, there for as long as it is rendered. The browser keeps the focus in it and gives it back. What is marked with
 * `data-first` has it first; otherwise the browser would give it to the button that closes the dialog.
 */
export function Dialog({ title, onClose, children, footer, shape = "box" }: DialogProps) {
    const ref = useRef<HTMLDialogElement>(null);
    const id = useId();
    useEffect(() => {
        const dialog = ref.current;
        if (dialog && !dialog.open) dialog.showModal();
        dialog?.querySelector<HTMLElement>("[data-first]")?.focus();
        return () => dialog?.close();
    }, []);
    return (
        // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog, as the click beside it does.
        <dialog
            ref={ref}
            className={classes(styles.dialog, styles[shape])}
            aria-labelledby={id}
            onCancel={(event) => {
                event.preventDefault();
                onClose();
            }}
            onClick={(event) => event.target === ref.current && onClose()}
        >
            <div className={styles.inside}>
                <header className={styles.header}>
                    <h2 id={id}>{title}</h2>
                    <IconButton label="Close" icon={X} onClick={onClose} small />
                </header>
                <div className={styles.body}>{children}</div>
                {footer && <footer className={styles.footer}>{footer}</footer>}
            </div>
        </dialog>
    );
}
