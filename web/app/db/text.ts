import type { Message, Part } from "./types";

/** What is said in a message, without thoughts, calls and files. */
export function textOf(parts: readonly Part[]): string {
    return parts
        .filter((part) => part.kind === "text")
        .map((part) => part.text)
        .join("");
}

/** All of a message that can be searched. */
export function searchable(message: Message): string {
    return message.parts.map(searchablePart).join("\n");
}

function searchablePart(part: Part): string {
    switch (part.kind) {
        case "text":
        case "thinking":
            return part.text;
        case "call":
            return `${part.name} ${part.arguments}`;
        case "result":
            return part.content;
        case "image":
            return part.name;
        case "file":
            return `${part.name} ${part.text}`;
    }
}

const TITLE = 60;

/** A conversation's name, from its first message. */
export function titleFrom(parts: readonly Part[]): string {
    const text = textOf(parts).trim().split(/\s+/).join(" ");
    const other = parts.find((part) => part.kind === "file" || part.kind === "image")?.name;
    const title = text || other || "New chat";
    return title.length <= TITLE ? title : `${title.slice(0, TITLE).replace(/\s+\S*$/, "")}…`;
}
