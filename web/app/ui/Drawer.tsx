import { type ReactNode, useEffect, useRef } from "react";
import styles from "./Drawer.module.css";

/** A modal from the left edge, there for as long as it is rendered. */
export function Drawer({ label, onClose, children }: { label: string; onClose: () => void; children: ReactNode }) {
    const ref = useRef<HTMLDialogElement>(null);
    useEffect(() => {
        const dialog = ref.current;
        if (dialog && !dialog.open) dialog.showModal();
        return () => dialog?.close();
    }, []);
    return (
        // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog, as the click beside it does.
        <dialog
            ref={ref}
            className={styles.drawer}
            aria-label={label}
            onCancel={(event) => {
                event.preventDefault();
                onClose();
            }}
            onClick={(event) => event.target === ref.current && onClose()}
        >
            {children}
        </dialog>
    );
}
