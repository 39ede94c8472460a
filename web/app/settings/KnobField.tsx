import { useState } from "react";
import type { Props } from "../api/props";
import { useServer } from "../api/server";
import { protocols } from "../protocols";
import { AreaField, SelectField, Switch, TextField } from "../ui/Field";
import { type Knob, problem } from "./knobs";
import styles from "./Settings.module.css";
import type { KnobValue, Settings } from "./settings";

interface KnobFieldProps {
    knob: Knob;
    settings: Settings;
    onChange: (settings: Settings) => void;
}

/** One setting. Empty, it is the server's, whose value stands in the field. */
export function KnobField({ knob, settings, onChange }: KnobFieldProps) {
    const { props } = useServer();
    const value = settings.knobs[knob.name];
    const set = (value: KnobValue | undefined) => {
        const { [knob.name]: _, ...others } = settings.knobs;
        onChange({ ...settings, knobs: value === undefined ? others : { ...others, [knob.name]: value } });
    };
    const offered = knob.protocols.includes(settings.protocol);
    const hint = offered ? knob.hint : `${knob.hint} Not in ${protocols[settings.protocol].title}: it is not sent.`;
    const common = { knob, hint, value, set, told: props && knob.serverDefault?.(props) };
    switch (knob.kind) {
        case "number":
            return <NumberKnob {...common} knob={knob} />;
        case "choice":
            return <ChoiceKnob {...common} knob={knob} props={props} />;
        case "flag":
            return (
                <Switch
                    label={knob.label}
                    hint={hint}
                    checked={value === true}
                    onChange={(event) => set(event.target.checked || undefined)}
                />
            );
        case "texts":
            return (
                <AreaField
                    label={knob.label}
                    hint={hint}
                    rows={2}
                    placeholder="None"
                    defaultValue={Array.isArray(value) ? value.join("\n") : ""}
                    onChange={(event) => {
                        const texts = event.target.value.split("\n").filter((text) => text !== "");
                        set(texts.length > 0 ? texts : undefined);
                    }}
                />
            );
        case "json":
            return <JsonKnob {...common} />;
    }
}

interface FieldProps<K extends Knob = Knob> {
    knob: K;
    hint: string;
    value: KnobValue | undefined;
    set: (value: KnobValue | undefined) => void;
    told: { value: string; from?: string } | undefined;
}

/** The server's value and where it has it from: `0.8 (built-in)`. */
function placeholder(told: FieldProps["told"]): string {
    if (!told) return "the server’s";
    return told.from ? `${told.value} (${told.from})` : told.value;
}

function NumberKnob({ knob, hint, value, set, told }: FieldProps<Extract<Knob, { kind: "number" }>>) {
    const [text, setText] = useState(value === undefined ? "" : String(value));
    // What the field holds that is not the setting is an attempt; a setting that was changed elsewhere replaces it.
    const [before, setBefore] = useState(value);
    if (before !== value) {
        setBefore(value);
        if (value === undefined ? Number.isFinite(Number(text)) && text !== "" : Number(text) !== value) {
            setText(value === undefined ? "" : String(value));
        }
    }
    const wrong = text.trim() === "" ? undefined : problem(knob, Number(text));
    return (
        <TextField
            label={knob.label}
            hint={hint}
            error={wrong}
            className={styles.number}
            inputMode={knob.whole ? "numeric" : "decimal"}
            placeholder={placeholder(told)}
            value={text}
            onChange={(event) => {
                const given = event.target.value;
                setText(given);
                if (given.trim() === "") set(undefined);
                else if (!problem(knob, Number(given))) set(Number(given));
            }}
        />
    );
}

type ChoiceProps = FieldProps<Extract<Knob, { kind: "choice" }>> & { props: Props | undefined };

function ChoiceKnob({ knob, hint, value, set, told, props }: ChoiceProps) {
    return (
        <SelectField
            label={knob.label}
            hint={hint}
            value={typeof value === "string" ? value : ""}
            onChange={(event) => set(event.target.value || undefined)}
        >
            <option value="">Server: {placeholder(told)}</option>
            {knob.choices(props).map((choice) => (
                <option key={choice} value={choice}>
                    {choice}
                </option>
            ))}
        </SelectField>
    );
}

function JsonKnob({ knob, hint, value, set }: FieldProps) {
    const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value));
    const read = readObject(text);
    return (
        <AreaField
            label={knob.label}
            hint={hint}
            error={typeof read === "string" ? read : undefined}
            className={styles.code}
            rows={2}
            spellCheck={false}
            placeholder="{}"
            value={text}
            onChange={(event) => {
                setText(event.target.value);
                const read = readObject(event.target.value);
                if (typeof read !== "string") set(read);
            }}
        />
    );
}

/** The object, undefined for nothing, or what is wrong. */
function readObject(json: string): Record<string, unknown> | undefined | string {
    if (json.trim() === "") return undefined;
    try {
        const value: unknown = JSON.parse(json);
        const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
        return isObject ? (value as Record<string, unknown>) : "This must be a JSON object.";
    } catch (failure) {
        return `This is not JSON: ${failure instanceof Error ? failure.message : failure}`;
    }
}
