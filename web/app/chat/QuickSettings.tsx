import { Braces, Brain, SlidersHorizontal, Wrench } from "lucide-react";
import { useServer } from "../api/server";
import type { Settings } from "../settings/settings";
import { toolsOf } from "../tools/run";
import { Button } from "../ui/Button";
import { plural } from "../ui/format";
import styles from "./QuickSettings.module.css";

interface QuickSettingsProps {
    settings: Settings;
    onChange: (settings: Settings) => void;
    /** Opens the settings at one of their tabs. */
    onOpen: (tab: string) => void;
}

/** How much is thought, and what of the settings is not as the server has it, where messages are written. */
export function QuickSettings({ settings, onChange, onOpen }: QuickSettingsProps) {
    const { props } = useServer();
    const efforts = props?.reasoning_efforts ?? [];
    const effort = settings.knobs.reasoning_effort;
    const tools = toolsOf(settings).length;
    const changed = Object.keys(settings.knobs).filter((name) => name !== "reasoning_effort").length;
    const setEffort = (value: string) => {
        const { reasoning_effort: _, ...others } = settings.knobs;
        onChange({ ...settings, knobs: value ? { ...others, reasoning_effort: value } : others });
    };
    return (
        <div className={styles.quick}>
            {efforts.length > 0 && (
                <label className={styles.effort}>
                    <Brain size={15} aria-hidden />
                    <span className="visually-hidden">Thinking</span>
                    <select
                        value={typeof effort === "string" ? effort : ""}
                        onChange={(event) => setEffort(event.target.value)}
                    >
                        <option value="">{props?.reasoning_effort ?? "Thinking"}</option>
                        {efforts.map((one) => (
                            <option key={one} value={one}>
                                {one === "none" ? "no thinking" : one}
                            </option>
                        ))}
                    </select>
                </label>
            )}
            {tools > 0 && (
                <Button small look="quiet" icon={Wrench} onClick={() => onOpen("tools")}>
                    {plural(tools, "tool")}
                </Button>
            )}
            {settings.schema && (
                <Button small look="quiet" icon={Braces} onClick={() => onOpen("form")}>
                    Form
                </Button>
            )}
            {changed > 0 && (
                <Button small look="quiet" icon={SlidersHorizontal} onClick={() => onOpen("sampling")}>
                    {changed} changed
                </Button>
            )}
        </div>
    );
}
