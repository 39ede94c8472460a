import { Monitor, Moon, Sun } from "lucide-react";
import { lazy, Suspense } from "react";
import { useServer } from "../api/server";
import { pages } from "../pages";
import { href, useRoute } from "../router";
import { IconButton } from "../ui/Button";
import { useStore } from "../ui/store";
import styles from "./Sidebar.module.css";
import { setTheme, type Theme, theme } from "./theme";

const Conversations = lazy(() => import("../chat/Conversations"));

/** The conversations, the ways to the other pages, how the server is. `onLeave` follows every step to another page. */
export function Sidebar({ onLeave }: { onLeave: () => void }) {
    const { props } = useServer();
    const route = useRoute();
    const shown = pages.filter((page) => page.path !== "chat" && (page.shown?.(props) ?? true));
    return (
        <div className={styles.sidebar}>
            <Suspense fallback={<div className={styles.grow} />}>
                <Conversations onLeave={onLeave} />
            </Suspense>
            {shown.length > 0 && (
                <nav aria-label="Pages" className={styles.nav}>
                    {shown.map(({ path, title, icon: Icon }) => (
                        <a
                            key={path}
                            href={href(path)}
                            onClick={onLeave}
                            aria-current={route.page === path ? "page" : undefined}
                        >
                            <Icon size={16} aria-hidden />
                            {title}
                        </a>
                    ))}
                </nav>
            )}
            <div className={styles.foot}>
                <ServerLine />
                <ThemeButton />
            </div>
        </div>
    );
}

function ServerLine() {
    const { phase, props } = useServer();
    const title = props?.model.title ?? props?.model.name;
    return (
        <div className={styles.server}>
            <span className={styles.dot} data-phase={phase} aria-hidden />
            <span className={styles.model} title={title}>
                {title ?? (phase === "connecting" ? "Connecting…" : "No server")}
            </span>
            <span className="visually-hidden">{phase === "ok" ? "is ready" : "is not ready"}</span>
        </div>
    );
}

const nextTheme: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const themeIcons = { system: Monitor, light: Sun, dark: Moon };

function ThemeButton() {
    const value = useStore(theme);
    return (
        <IconButton
            label={`Theme: ${value}. Change to ${nextTheme[value]}`}
            icon={themeIcons[value]}
            small
            onClick={() => setTheme(nextTheme[value])}
        />
    );
}
