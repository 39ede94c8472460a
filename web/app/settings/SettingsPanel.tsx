import { useState } from "react";
import { useServer } from "../api/server";
import { offered } from "../protocols";
import { builtins } from "../tools/builtins";
import { readDeclarations } from "../tools/declarations";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { AreaField, SelectField, Switch } from "../ui/Field";
import { Notice } from "../ui/Notice";
import { Tabs } from "../ui/Tabs";
import { KnobField } from "./KnobField";
import { knobs } from "./knobs";
import { PromptLibrary } from "./PromptLibrary";
import styles from "./Settings.module.css";
import type { ProtocolName, Settings } from "./settings";

interface TabProps {
    settings: Settings;
    onChange: (settings: Settings) => void;
}

interface SettingsPanelProps extends TabProps {
    /** The tab that it opens at. */
    initial: string;
    onClose: () => void;
}

/** The settings of one conversation. Each change holds from the next message on. */
export default function SettingsPanel({ initial, settings: kept, onChange, onClose }: SettingsPanelProps) {
    const [tab, setTab] = useState(initial);
    // What is kept comes back later than the next key is pressed.
    const [settings, setSettings] = useState(kept);
    const props: TabProps = {
        settings,
        onChange: (settings) => {
            setSettings(settings);
            onChange(settings);
        },
    };
    const tabs = [
        { id: "general", title: "General", content: <General {...props} /> },
        { id: "sampling", title: "Sampling", content: <Groups {...props} groups={["Sampling", "Penalties"]} /> },
        { id: "limits", title: "Limits", content: <Groups {...props} groups={["Thinking", "Length", "Server"]} /> },
        { id: "tools", title: "Tools", content: <Tools {...props} /> },
        { id: "form", title: "Form", content: <Form {...props} /> },
    ];
    return (
        <Dialog title="Settings of this chat" shape="panel" onClose={onClose}>
            <Tabs label="Settings" tabs={tabs} selected={tab} onSelect={setTab} />
        </Dialog>
    );
}

function General({ settings, onChange }: TabProps) {
    const { props } = useServer();
    return (
        <div className="stack">
            <SelectField
                label="Protocol"
                hint="What the page talks to the server. Answers are the same; some settings are not in all of them."
                value={settings.protocol}
                onChange={(event) => onChange({ ...settings, protocol: event.target.value as ProtocolName })}
            >
                {offered(props?.capabilities).map(({ name, title, path }) => (
                    <option key={name} value={name}>
                        {title} ({path})
                    </option>
                ))}
            </SelectField>
            <AreaField
                label="System prompt"
                placeholder="None: the model's own"
                rows={6}
                value={settings.system ?? ""}
                onChange={(event) => onChange({ ...settings, system: event.target.value })}
            />
            <PromptLibrary text={settings.system ?? ""} onPick={(system) => onChange({ ...settings, system })} />
            <div className="row">
                <Button onClick={() => onChange({ ...settings, knobs: {} })}>Back to the server’s defaults</Button>
            </div>
        </div>
    );
}

function Groups({ settings, onChange, groups }: TabProps & { groups: readonly string[] }) {
    return (
        <div className="stack">
            {groups.map((group) => (
                <section key={group} className="stack" aria-label={group}>
                    <h3 className={styles.group}>{group}</h3>
                    <div className={styles.knobs}>
                        {knobs
                            .filter((knob) => knob.group === group)
                            .map((knob) => (
                                <div key={knob.name} data-kind={knob.kind}>
                                    <KnobField knob={knob} {...{ settings, onChange }} />
                                </div>
                            ))}
                    </div>
                </section>
            ))}
        </div>
    );
}

function Tools({ settings, onChange }: TabProps) {
    const { props } = useServer();
    const [json, setJson] = useState(() => (settings.tools.length > 0 ? JSON.stringify(settings.tools, null, 2) : ""));
    const read = readDeclarations(json);
    const toggle = (name: string, on: boolean) => {
        const others = settings.builtins.filter((one) => one !== name);
        onChange({ ...settings, builtins: on ? [...others, name] : others });
    };
    return (
        <div className="stack">
            {props?.capabilities.tool_calls === false && (
                <Notice tone="warn" title="This model’s template knows no tools.">
                    They are described to it in words; it may not call them well.
                </Notice>
            )}
            <section className="stack" aria-label="Run by this page">
                <h3 className={styles.group}>Run by this page</h3>
                {builtins.map(({ title, declaration: { name, description } }) => (
                    <Switch
                        key={name}
                        label={title}
                        hint={description}
                        checked={settings.builtins.includes(name)}
                        onChange={(event) => toggle(name, event.target.checked)}
                    />
                ))}
            </section>
            <section className="stack" aria-label="Run by you">
                <h3 className={styles.group}>Run by you</h3>
                <AreaField
                    label="Tools as JSON"
                    hint="One or a list, in the form of any of the protocols. You paste what they give back."
                    error={"problem" in read ? read.problem : undefined}
                    className={styles.code}
                    spellCheck={false}
                    rows={10}
                    placeholder={'[{"name": "weather", "parameters": {"type": "object", …}}]'}
                    value={json}
                    onChange={(event) => {
                        setJson(event.target.value);
                        const read = readDeclarations(event.target.value);
                        if ("tools" in read) onChange({ ...settings, tools: read.tools });
                    }}
                />
                {settings.tools.length > 0 && (
                    <p className="muted">Declared: {settings.tools.map((tool) => tool.name).join(", ")}</p>
                )}
            </section>
            <Groups {...{ settings, onChange }} groups={["Tools"]} />
        </div>
    );
}

function Form({ settings, onChange }: TabProps) {
    const { props } = useServer();
    const [json, setJson] = useState(() => (settings.schema ? JSON.stringify(settings.schema, null, 2) : ""));
    const read = readSchema(json);
    const change = (text: string) => {
        setJson(text);
        const read = readSchema(text);
        if ("schema" in read) {
            const { schema: _, ...others } = settings;
            onChange(read.schema ? { ...others, schema: read.schema } : others);
        }
    };
    return (
        <div className="stack">
            {props?.capabilities.structured_output === false && (
                <Notice tone="warn" title="This server does not hold answers to a schema.">
                    The answer is still checked when it is there.
                </Notice>
            )}
            <AreaField
                label="JSON schema of answers"
                hint="Answers are held to it, and checked when they are there. Empty: any text."
                error={"problem" in read ? read.problem : undefined}
                className={styles.code}
                spellCheck={false}
                rows={14}
                placeholder={'{"type": "object", "properties": {…}, "required": […]}'}
                value={json}
                onChange={(event) => change(event.target.value)}
            />
            {settings.schema && (
                <div className="row">
                    <Button onClick={() => change("")}>Answer in any form</Button>
                </div>
            )}
        </div>
    );
}

function readSchema(json: string): { schema: Record<string, unknown> | undefined } | { problem: string } {
    if (json.trim() === "") return { schema: undefined };
    try {
        const value: unknown = JSON.parse(json);
        if (typeof value === "object" && value !== null && !Array.isArray(value)) {
            return { schema: value as Record<string, unknown> };
        }
        return { problem: "A schema is an object." };
    } catch (failure) {
        return { problem: `This is not JSON: ${failure instanceof Error ? failure.message : failure}` };
    }
}
