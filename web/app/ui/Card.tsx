import { type ReactNode, useId } from "react";
import styles from "./Card.module.css";
import { classes } from "./classes";

interface CardProps {
    title: string;
    /** Beside the title: a figure, a button. */
    aside?: ReactNode;
    className?: string | undefined;
    children: ReactNode;
}

/** A part of a page with a title of its own. */
export function Card({ title, aside, className, children }: CardProps) {
    const id = useId();
    return (
        <section className={classes(styles.card, className)} aria-labelledby={id}>
            <header className={styles.header}>
                <h2 id={id}>{title}</h2>
                {aside && <div className={styles.aside}>{aside}</div>}
            </header>
            {children}
        </section>
    );
}
