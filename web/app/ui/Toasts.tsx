import { X } from "lucide-react";
import { Button, IconButton } from "./Button";
import { classes } from "./classes";
import { useStore } from "./store";
import styles from "./Toasts.module.css";
import { dismiss, toasts } from "./toasts";

export function Toasts() {
    const all = useStore(toasts);
    return (
        <div className={styles.toasts} role="status">
            {all.map((toast) => (
                <div key={toast.id} className={classes(styles.toast, styles[toast.tone])}>
                    <span>{toast.text}</span>
                    {toast.action && (
                        <Button
                            small
                            onClick={() => {
                                toast.action?.run();
                                dismiss(toast.id);
                            }}
                        >
                            {toast.action.label}
                        </Button>
                    )}
                    <IconButton label="Dismiss" icon={X} small onClick={() => dismiss(toast.id)} />
                </div>
            ))}
        </div>
    );
}
