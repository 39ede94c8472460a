import { useServer } from "../../api/server";
import { Button } from "../../ui/Button";
import { AreaField, Switch, TextField } from "../../ui/Field";
import styles from "./Completions.module.css";
import { defaults, knobs, type Options, type Problems } from "./options";

interface OptionsFormProps {
    options: Options;
    wrong: Problems;
    onChange: (options: Options) => void;
}

/** Every sampling knob, with what the server does where it is left empty. */
export function OptionsForm({ options, wrong, onChange }: OptionsFormProps) {
    const { props } = useServer();
    const set = (change: Partial<Options>) => onChange({ ...options, ...change });
    const placeholder = (name: string) => {
        const told = props?.sampling[name];
        return told?.value === undefined || told.value === null ? "server's choice" : `${told.value} (${told.from})`;
    };
    return (
        <div className={styles.form}>
            <TextField
                label="Max tokens"
                inputMode="numeric"
                value={options.maxTokens}
                placeholder={props ? String(props.max_tokens) : ""}
                onChange={(event) => set({ maxTokens: event.target.value })}
                error={wrong.max_tokens}
            />
            <TextField
                label="Alternatives"
                hint="told of each token, up to 20"
                inputMode="numeric"
                value={options.alternatives}
                onChange={(event) => set({ alternatives: event.target.value })}
                error={wrong.alternatives}
            />
            {knobs.map(({ name, label, hint }) => (
                <TextField
                    key={name}
                    label={label}
                    hint={hint}
                    inputMode="decimal"
                    value={options.numbers[name] ?? ""}
                    placeholder={placeholder(name)}
                    onChange={(event) => set({ numbers: { ...options.numbers, [name]: event.target.value } })}
                    error={wrong[name]}
                />
            ))}
            <div className={styles.whole}>
                <AreaField
                    label="Stop texts"
                    hint="one a line; \n stands for a line break"
                    value={options.stop}
                    onChange={(event) => set({ stop: event.target.value })}
                    className={styles.few}
                />
            </div>
            <div className={styles.whole}>
                <TextField
                    label="Logit bias"
                    value={options.logitBias}
                    placeholder='{"42": -5}'
                    onChange={(event) => set({ logitBias: event.target.value })}
                    error={wrong.logit_bias}
                />
            </div>
            <Switch
                className={styles.whole}
                label="Go on behind end tokens"
                checked={options.ignoreEos}
                onChange={(event) => set({ ignoreEos: event.target.checked })}
            />
            <div className={styles.whole}>
                <Button small onClick={() => onChange(defaults)}>
                    All as the server does
                </Button>
            </div>
        </div>
    );
}
