import { createStore } from "../ui/store";

export type Theme = "system" | "light" | "dark";

const NAME = "bantam-theme";

function stored(): Theme {
    try {
        const value = localStorage.getItem(NAME);
        return value === "light" || value === "dark" ? value : "system";
    } catch {
        return "system";
    }
}

export const theme = createStore<Theme>(stored());

/** Puts the theme on the page now, and whenever it changes, here or in another tab. */
export function applyTheme(): void {
    const apply = () => {
        const value = theme.get();
        if (value === "system") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = value;
    };
    apply();
    theme.subscribe(apply);
    addEventListener("storage", (event) => event.key === NAME && theme.set(stored()));
}

export function setTheme(value: Theme): void {
    try {
        localStorage.setItem(NAME, value);
    } catch {
        // It then lasts as long as the page.
    }
    theme.set(value);
}
