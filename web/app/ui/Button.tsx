import type { LucideIcon } from "lucide-react";
import type { ComponentProps, ReactNode } from "react";
import styles from "./Button.module.css";
import { classes } from "./classes";

interface ButtonProps extends ComponentProps<"button"> {
    /** `primary` for the one thing to do, `plain` for the others, `quiet` where many stand together. */
    look?: "primary" | "plain" | "quiet" | "danger";
    small?: boolean;
    icon?: LucideIcon;
}

export function Button({ look = "plain", small, icon: Icon, className, children, ...rest }: ButtonProps) {
    return (
        <button
            type="button"
            className={classes(styles.button, styles[look], small && styles.small, className)}
            {...rest}
        >
            {Icon && <Icon size={small ? 14 : 16} aria-hidden />}
            {children}
        </button>
    );
}

interface IconButtonProps extends Omit<ComponentProps<"button">, "children"> {
    /** What it does: its name for those who do not see the icon, and its tooltip. */
    label: string;
    icon: LucideIcon;
    small?: boolean;
    children?: ReactNode;
}

export function IconButton({ label, icon: Icon, small, className, children, ...rest }: IconButtonProps) {
    return (
        <button
            type="button"
            aria-label={label}
            title={label}
            className={classes(styles.button, styles.quiet, styles.icon, small && styles.small, className)}
            {...rest}
        >
            <Icon size={small ? 15 : 18} aria-hidden />
            {children}
        </button>
    );
}
