import { CircleAlert, Info, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import type { ApiError } from "../api/errors";
import { classes } from "./classes";
import styles from "./Notice.module.css";

interface NoticeProps {
    tone?: "info" | "warn" | "bad";
    /** What is the matter. */
    title: ReactNode;
    /** What to do about it. */
    children?: ReactNode;
    /** Buttons. */
    actions?: ReactNode;
    /** `alert` is read out at once; for what happens while the person does something else. */
    role?: "alert" | "status";
}

const icons = { info: Info, warn: TriangleAlert, bad: CircleAlert };

export function Notice({ tone = "info", title, children, actions, role }: NoticeProps) {
    const Icon = icons[tone];
    return (
        <div className={classes(styles.notice, styles[tone])} role={role}>
            <Icon size={17} aria-hidden className={styles.icon} />
            <div className={styles.text}>
                <p className={styles.title}>{title}</p>
                {children && <div className={styles.more}>{children}</div>}
                {actions && <div className={styles.actions}>{actions}</div>}
            </div>
        </div>
    );
}

/** A failed request: what the server said, and what to do. */
export function ErrorNotice({ error, actions }: { error: ApiError; actions?: ReactNode }) {
    return (
        <Notice tone="bad" title={error.message} actions={actions} role="alert">
            {error.advice}
        </Notice>
    );
}
