import type { ReactNode } from "react";
import styles from "./PageFrame.module.css";

interface PageFrameProps {
    title: string;
    /** One line on what the page is for. */
    lead?: ReactNode;
    /** Buttons beside the title. */
    actions?: ReactNode;
    children: ReactNode;
}

/** What every page but the chat stands in: a title and a scrolled column. */
export function PageFrame({ title, lead, actions, children }: PageFrameProps) {
    return (
        <section
            className={styles.page}
            aria-label={title}
            // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
            tabIndex={0}
        >
            <div className={styles.inside}>
                <header className={styles.header}>
                    <div>
                        <h1>{title}</h1>
                        {lead && <p className={styles.lead}>{lead}</p>}
                    </div>
                    {actions && <div className={styles.actions}>{actions}</div>}
                </header>
                {children}
            </div>
        </section>
    );
}
