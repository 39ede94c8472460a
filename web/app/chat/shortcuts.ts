import { useEffect, useRef } from "react";
import { createStore } from "../ui/store";

/** Keys and what they do, for the page and for its help. */
export interface Shortcut {
    keys: readonly string[];
    what: string;
}

export const shortcuts: readonly Shortcut[] = [
    { keys: ["Enter"], what: "Send" },
    { keys: ["Shift", "Enter"], what: "New line" },
    { keys: ["↑"], what: "Edit the last message, from an empty field" },
    { keys: ["/"], what: "Write a message" },
    { keys: ["Esc"], what: "Stop the answer" },
    { keys: ["Alt", "Enter"], what: "Answer now: end the thinking" },
    { keys: ["Alt", "R"], what: "Retry the last answer" },
    { keys: ["Alt", "N"], what: "New chat" },
    { keys: ["Alt", "K"], what: "Search conversations" },
    { keys: ["Alt", "↑"], what: "Conversation above" },
    { keys: ["Alt", "↓"], what: "Conversation below" },
    { keys: ["Alt", "S"], what: "Settings of this chat" },
    { keys: ["?"], what: "This help" },
];

export const helpOpen = createStore(false);

interface Handlers {
    settings?: () => void;
    stop?: () => void;
    answerNow?: () => void;
    retry?: () => void;
    newChat?: () => void;
    search?: () => void;
    step?: (by: 1 | -1) => void;
    write?: () => void;
    help?: () => void;
}

/** Whether a key is text that somebody writes. */
function writes(target: EventTarget | null): boolean {
    return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}

/** Listens for the keys that these handlers are for. Dialogs keep keys to themselves. */
export function useShortcuts(handlers: Handlers): void {
    const latest = useRef(handlers);
    latest.current = handlers;
    useEffect(() => {
        const pressed = (event: KeyboardEvent) => {
            if (event.defaultPrevented || event.ctrlKey || event.metaKey) return;
            if (document.querySelector("dialog[open]")) return;
            const run = handlerOf(event, latest.current);
            if (!run) return;
            event.preventDefault();
            run();
        };
        addEventListener("keydown", pressed);
        return () => removeEventListener("keydown", pressed);
    }, []);
}

function handlerOf(event: KeyboardEvent, handlers: Handlers): (() => void) | undefined {
    if (event.altKey) {
        switch (event.code) {
            case "Enter":
                return handlers.answerNow;
            case "KeyR":
                return handlers.retry;
            case "KeyN":
                return handlers.newChat;
            case "KeyK":
                return handlers.search;
            case "KeyS":
                return handlers.settings;
            case "ArrowUp":
                return handlers.step && (() => handlers.step?.(-1));
            case "ArrowDown":
                return handlers.step && (() => handlers.step?.(1));
        }
        return undefined;
    }
    if (event.key === "Escape") return handlers.stop;
    if (writes(event.target)) return undefined;
    if (event.key === "?") return handlers.help;
    if (event.key === "/") return handlers.write;
    return undefined;
}
