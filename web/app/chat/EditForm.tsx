import { type KeyboardEvent, useState } from "react";
import { Button } from "../ui/Button";
import { AreaField } from "../ui/Field";
import styles from "./Message.module.css";

interface EditFormProps {
    label: string;
    text: string;
    action: string;
    onSave: (text: string) => void;
    onCancel: () => void;
}

export function EditForm({ label, text, action, onSave, onCancel }: EditFormProps) {
    const [value, setValue] = useState(text);
    const keys = (event: KeyboardEvent) => {
        if (event.key === "Escape") {
            event.stopPropagation();
            onCancel();
        }
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onSave(value);
    };
    return (
        <div className={styles.edit}>
            <AreaField
                label={label}
                labelHidden
                value={value}
                autoFocus
                rows={4}
                onKeyDown={keys}
                onChange={(event) => setValue(event.target.value)}
            />
            <div className="row end">
                <Button onClick={onCancel}>Cancel</Button>
                <Button look="primary" disabled={value.trim() === ""} onClick={() => onSave(value)}>
                    {action}
                </Button>
            </div>
        </div>
    );
}
