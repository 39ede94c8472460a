import { EllipsisVertical, type LucideIcon } from "lucide-react";
import { type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from "react";
import { createPortal } from "react-dom";
import { IconButton } from "./Button";
import { classes } from "./classes";
import styles from "./Menu.module.css";

export interface MenuItem {
    label: string;
    icon: LucideIcon;
    run: () => void;
    danger?: boolean;
}

interface MenuProps {
    label: string;
    items: readonly MenuItem[];
    className?: string | undefined;
}

/** A button that opens a list of things to do. */
export function Menu({ label, items, className }: MenuProps) {
    const [open, setOpen] = useState(false);
    const button = useRef<HTMLButtonElement>(null);
    const close = (focus: boolean) => {
        setOpen(false);
        if (focus) button.current?.focus();
    };
    return (
        <>
            <IconButton
                ref={button}
                label={label}
                icon={EllipsisVertical}
                small
                className={className}
                aria-haspopup="menu"
                aria-expanded={open}
                onClick={() => setOpen(!open)}
            />
            {open && <List items={items} label={label} anchor={button.current} onClose={close} />}
        </>
    );
}

interface ListProps {
    items: readonly MenuItem[];
    label: string;
    anchor: HTMLElement | null;
    onClose: (focus: boolean) => void;
}

function List({ items, label, anchor, onClose }: ListProps) {
    const ref = useRef<HTMLDivElement>(null);
    useLayoutEffect(() => {
        const menu = ref.current;
        if (!menu || !anchor) return;
        place(menu, anchor);
        menu.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    }, [anchor]);
    useEffect(() => {
        const outside = (event: Event) => {
            const target = event.target as Node;
            if (!ref.current?.contains(target) && !anchor?.contains(target)) onClose(false);
        };
        document.addEventListener("pointerdown", outside);
        return () => document.removeEventListener("pointerdown", outside);
    }, [anchor, onClose]);
    const keys = (event: KeyboardEvent) => {
        if (event.key === "Escape" || event.key === "Tab") {
            event.preventDefault();
            event.stopPropagation();
            onClose(true);
            return;
        }
        const all = [...(ref.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
        const at = all.indexOf(document.activeElement as HTMLElement);
        const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        all[(to + all.length) % all.length]?.focus();
    };
    // Inside an open dialog nothing outside of it can be reached.
    const host = anchor?.closest("dialog") ?? document.body;
    return createPortal(
        <div ref={ref} role="menu" aria-label={label} className={styles.menu} onKeyDown={keys}>
            {items.map(({ label, icon: Icon, run, danger }) => (
                <button
                    key={label}
                    type="button"
                    role="menuitem"
                    tabIndex={-1}
                    className={classes(styles.item, danger && styles.danger)}
                    onClick={() => {
                        onClose(true);
                        run();
                    }}
                >
                    <Icon size={15} aria-hidden />
                    {label}
                </button>
            ))}
        </div>,
        host,
    );
}

/** Below the button and within the window. */
function place(menu: HTMLElement, anchor: HTMLElement): void {
    const at = anchor.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = menu;
    const below = at.bottom + 4 + height <= innerHeight;
    menu.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
    menu.style.top = `${Math.max(8, below ? at.bottom + 4 : at.top - height - 4)}px`;
}
