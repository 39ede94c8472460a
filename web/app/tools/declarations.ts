/** Tools as people paste them: in the form of any of the protocols, one or a list. */

import type { ToolDeclaration } from "../settings/settings";

export type Declared = { tools: ToolDeclaration[] } | { problem: string };

const NAME = /^[\w.-]{1,128}$/;

export function readDeclarations(json: string): Declared {
    if (json.trim() === "") return { tools: [] };
    let given: unknown;
    try {
        given = JSON.parse(json);
    } catch (failure) {
        return { problem: `This is not JSON: ${failure instanceof Error ? failure.message : failure}` };
    }
    const items = Array.isArray(given) ? given : [given];
    const tools: ToolDeclaration[] = [];
    for (const [index, item] of items.entries()) {
        const read = declaration(item);
        if (typeof read === "string") return { problem: `Tool ${index + 1} ${read}` };
        if (tools.some((tool) => tool.name === read.name)) return { problem: `There are two tools \`${read.name}\`` };
        tools.push(read);
    }
    return { tools };
}

/** The tool, or what is wrong with it. */
function declaration(item: unknown): ToolDeclaration | string {
    if (!isObject(item)) return "must be an object";
    if (typeof item.type === "string" && item.type !== "function" && item.type !== "custom") {
        return `is of type \`${item.type}\`; only functions can be declared`;
    }
    const { name, description, parameters, input_schema, strict } = isObject(item.function) ? item.function : item;
    if (typeof name !== "string" || !NAME.test(name)) {
        return "needs a `name` of letters, digits, `_`, `-` and `.`, 128 at most";
    }
    const schema = parameters ?? input_schema ?? { type: "object", properties: {} };
    if (!isObject(schema)) return `(\`${name}\`) needs \`parameters\` that are an object: a JSON schema`;
    if (description !== undefined && typeof description !== "string")
        return `(\`${name}\`) needs a text as \`description\``;
    return {
        name,
        ...(description !== undefined && { description }),
        parameters: schema,
        ...(typeof strict === "boolean" && { strict }),
    };
}

function isObject(value: unknown): value is Record<string, unknown> {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
