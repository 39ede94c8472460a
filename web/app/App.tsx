import { Menu } from "lucide-react";
import { Component, type ErrorInfo, type ReactNode, Suspense, useEffect, useState } from "react";
import styles from "./App.module.css";
import { useServerPolling } from "./api/server";
import { HelpDialog } from "./chat/HelpDialog";
import { helpOpen, useShortcuts } from "./chat/shortcuts";
import { pages } from "./pages";
import { useRoute } from "./router";
import { BarContext } from "./shell/bar";
import { KeyDialog } from "./shell/KeyDialog";
import { useNarrow } from "./shell/narrow";
import { ServerBanner } from "./shell/ServerBanner";
import { Sidebar } from "./shell/Sidebar";
import { Button, IconButton } from "./ui/Button";
import { Drawer } from "./ui/Drawer";
import { Notice } from "./ui/Notice";
import { Toasts } from "./ui/Toasts";

export function App() {
    useServerPolling();
    useShortcuts({ help });
    useEffect(refuseFiles, []);
    const narrow = useNarrow();
    const [open, setOpen] = useState(false);
    const [bar, setBar] = useState<HTMLElement | null>(null);
    const route = useRoute();
    const page = pages.find((page) => page.path === route.page);
    const close = () => setOpen(false);
    return (
        <div className={styles.app}>
            {!narrow && (
                <aside className={styles.side} aria-label="Conversations and pages">
                    <Sidebar onLeave={close} />
                </aside>
            )}
            {narrow && open && (
                <Drawer label="Conversations and pages" onClose={close}>
                    <Sidebar onLeave={close} />
                </Drawer>
            )}
            <main className={styles.main}>
                <ServerBanner />
                {narrow && (
                    <div className={styles.bar}>
                        <IconButton
                            label="Conversations and pages"
                            icon={Menu}
                            onClick={() => setOpen(true)}
                            aria-expanded={open}
                        />
                        {page && page.path !== "chat" && <span className={styles.title}>{page.title}</span>}
                        <div ref={setBar} className={styles.slot} />
                    </div>
                )}
                <div className={styles.page}>
                    <BarContext value={narrow ? bar : null}>
                        <Guard key={route.page}>
                            <Suspense fallback={<p className={styles.loading}>Loading…</p>}>
                                {page ? <page.view rest={route.rest} /> : <Unknown />}
                            </Suspense>
                        </Guard>
                    </BarContext>
                </div>
            </main>
            <KeyDialog />
            <HelpDialog />
            <Toasts />
        </div>
    );
}

/** A file that is dropped where nothing takes it would be opened by the browser, in place of the page. */
function refuseFiles(): () => void {
    const refuse = (event: DragEvent) => {
        if (event.defaultPrevented || !event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        event.dataTransfer.dropEffect = "none";
    };
    addEventListener("dragover", refuse);
    addEventListener("drop", refuse);
    return () => {
        removeEventListener("dragover", refuse);
        removeEventListener("drop", refuse);
    };
}

function help(): void {
    helpOpen.set(true);
}

function Unknown() {
    return (
        <div className={styles.centre}>
            <Notice title="There is no such page.">
                <a href="#/chat">Go to the chat</a>
            </Notice>
        </div>
    );
}

/** Keeps a fault of one page from taking the others down. */
class Guard extends Component<{ children: ReactNode }, { error: Error | undefined }> {
    override state = { error: undefined };

    static getDerivedStateFromError(error: Error) {
        return { error };
    }

    override componentDidCatch(error: Error, info: ErrorInfo) {
        console.error(error, info.componentStack);
    }

    override render() {
        const error: Error | undefined = this.state.error;
        if (!error) return this.props.children;
        return (
            <div className={styles.centre}>
                <Notice
                    tone="bad"
                    title="This page met a fault."
                    actions={<Button onClick={() => location.reload()}>Reload</Button>}
                >
                    {(error as Error).message} Conversations are safe in this browser.
                </Notice>
            </div>
        );
    }
}
