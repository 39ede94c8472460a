import { type ComponentProps, type ReactNode, useId } from "react";
import { classes } from "./classes";
import styles from "./Field.module.css";

interface Labelled {
    label: ReactNode;
    /** What it does, or where its value comes from. */
    hint?: ReactNode;
    /** What is wrong with the value. */
    error?: string | undefined;
    /** For the eye the label is left out; it stays for those who do not see. */
    labelHidden?: boolean;
}

interface Ids {
    id: string;
    "aria-describedby": string | undefined;
    "aria-invalid": true | undefined;
}

function Frame({ label, hint, error, labelHidden, children }: Labelled & { children: (ids: Ids) => ReactNode }) {
    const id = useId();
    const about = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
    return (
        <div className={styles.field}>
            <label htmlFor={id} className={labelHidden ? "visually-hidden" : styles.label}>
                {label}
            </label>
            {children({ id, "aria-describedby": about, "aria-invalid": error ? true : undefined })}
            {hint && (
                <p id={`${id}-hint`} className={styles.hint}>
                    {hint}
                </p>
            )}
            {error && (
                <p id={`${id}-error`} className={styles.error}>
                    {error}
                </p>
            )}
        </div>
    );
}

type Of<Tag extends "input" | "textarea" | "select"> = Labelled & Omit<ComponentProps<Tag>, "id">;

export function TextField({ label, hint, error, labelHidden, className, ...rest }: Of<"input">) {
    return (
        <Frame {...{ label, hint, error, labelHidden: labelHidden ?? false }}>
            {(ids) => <input className={classes(styles.input, className)} {...rest} {...ids} />}
        </Frame>
    );
}

export function AreaField({ label, hint, error, labelHidden, className, ...rest }: Of<"textarea">) {
    return (
        <Frame {...{ label, hint, error, labelHidden: labelHidden ?? false }}>
            {(ids) => <textarea className={classes(styles.input, styles.area, className)} {...rest} {...ids} />}
        </Frame>
    );
}

export function SelectField({ label, hint, error, labelHidden, className, children, ...rest }: Of<"select">) {
    return (
        <Frame {...{ label, hint, error, labelHidden: labelHidden ?? false }}>
            {(ids) => (
                <select className={classes(styles.input, className)} {...rest} {...ids}>
                    {children}
                </select>
            )}
        </Frame>
    );
}

interface SwitchProps extends Omit<ComponentProps<"input">, "type" | "id"> {
    label: ReactNode;
    hint?: ReactNode;
}

export function Switch({ label, hint, className, ...rest }: SwitchProps) {
    const id = useId();
    return (
        <div className={classes(styles.switch, className)}>
            {/* biome-ignore lint/a11y/useAriaPropsForRole: a checkbox says whether it is checked. */}
            <input id={id} type="checkbox" role="switch" aria-describedby={hint ? `${id}-hint` : undefined} {...rest} />
            <label htmlFor={id}>{label}</label>
            {hint && (
                <p id={`${id}-hint`} className={styles.hint}>
                    {hint}
                </p>
            )}
        </div>
    );
}
