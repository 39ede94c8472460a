import { type KeyboardEvent, type ReactNode, useId, useRef } from "react";
import styles from "./Tabs.module.css";

export interface Tab {
    id: string;
    title: string;
    content: ReactNode;
}

interface TabsProps {
    label: string;
    tabs: readonly Tab[];
    selected: string;
    onSelect: (id: string) => void;
}

/** Tabs as the ARIA practices have them: one stop for the Tab key, arrows between the titles. */
export function Tabs({ label, tabs, selected, onSelect }: TabsProps) {
    const id = useId();
    const list = useRef<HTMLDivElement>(null);
    const shown = tabs.find((tab) => tab.id === selected) ?? tabs[0];
    const move = (event: KeyboardEvent) => {
        const at = tabs.findIndex((tab) => tab.id === shown?.id);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const next = tabs[(to + tabs.length) % tabs.length];
        if (!next) return;
        onSelect(next.id);
        list.current?.querySelector<HTMLElement>(`[data-tab="${next.id}"]`)?.focus();
    };
    return (
        <div>
            <div ref={list} className={styles.list} role="tablist" aria-label={label} onKeyDown={move}>
                {tabs.map((tab) => (
                    <button
                        key={tab.id}
                        type="button"
                        role="tab"
                        data-tab={tab.id}
                        id={`${id}-${tab.id}`}
                        aria-selected={tab === shown}
                        aria-controls={`${id}-panel`}
                        tabIndex={tab === shown ? 0 : -1}
                        className={styles.tab}
                        onClick={() => onSelect(tab.id)}
                    >
                        {tab.title}
                    </button>
                ))}
            </div>
            <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${shown?.id}`} className={styles.panel}>
                {shown?.content}
            </div>
        </div>
    );
}
