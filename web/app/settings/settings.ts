/** What a conversation asks of the server beside its messages. What is absent is left to the server. */

export type ProtocolName = "chat" | "responses" | "messages";

/** A declared tool, as the model is told of it. */
export interface ToolDeclaration {
    name: string;
    description?: string;
    /** A JSON schema. */
    parameters: Record<string, unknown>;
    strict?: boolean;
}

export interface Settings {
    protocol: ProtocolName;
    system?: string;
    /** By the names of `knobs.ts`. */
    knobs: Partial<Record<string, KnobValue>>;
    /** Names of the built-in tools that are on. */
    builtins: string[];
    tools: ToolDeclaration[];
    /** JSON schema that answers keep to. */
    schema?: Record<string, unknown>;
}

export type KnobValue = number | string | boolean | string[] | Record<string, unknown>;

export const plainSettings: Settings = { protocol: "chat", knobs: {}, builtins: [], tools: [] };

const NAME = "bantam-new-chat";

/** What new conversations begin with: the settings that were last used for one. */
export function newSettings(): Settings {
    try {
        const stored = JSON.parse(localStorage.getItem(NAME) ?? "null") as unknown;
        return isSettings(stored) ? stored : plainSettings;
    } catch {
        return plainSettings;
    }
}

export function keepNewSettings(settings: Settings): void {
    try {
        localStorage.setItem(NAME, JSON.stringify(settings));
    } catch {
        // New conversations then begin with none.
    }
}

/** Whether something from outside, such as an imported file, has the form of settings. */
export function isSettings(value: unknown): value is Settings {
    if (typeof value !== "object" || value === null) return false;
    const { protocol, knobs, builtins, tools, system, schema } = value as Record<string, unknown>;
    return (
        (protocol === "chat" || protocol === "responses" || protocol === "messages") &&
        isObject(knobs) &&
        Array.isArray(builtins) &&
        builtins.every((name) => typeof name === "string") &&
        Array.isArray(tools) &&
        tools.every((tool) => isObject(tool) && typeof tool.name === "string" && isObject(tool.parameters)) &&
        (system === undefined || typeof system === "string") &&
        (schema === undefined || isObject(schema))
    );
}

function isObject(value: unknown): value is Record<string, unknown> {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
