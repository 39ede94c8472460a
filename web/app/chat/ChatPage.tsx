import { Settings2 } from "lucide-react";
import { lazy, type ReactNode, Suspense, use, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { createPortal } from "react-dom";
import { useServer } from "../api/server";
import { changeSettings, rename } from "../db/conversations";
import { textOf } from "../db/text";
import type { Message, Part } from "../db/types";
import type { PageProps } from "../pages";
import { navigate } from "../router";
import { keepNewSettings, newSettings, type Settings } from "../settings/settings";
import { BarContext } from "../shell/bar";
import { Button, IconButton } from "../ui/Button";
import { Notice } from "../ui/Notice";
import { useStore } from "../ui/store";
import { answer, say, startConversation } from "./actions";
import styles from "./ChatPage.module.css";
import { Composer } from "./Composer";
import { QuickSettings } from "./QuickSettings";
import { runs } from "./runs";
import { useShortcuts } from "./shortcuts";
import { type Shown, useConversation } from "./useConversation";

const NEW = "new";

/** What a new chat has no use for yet: the page is there before them, and has them before they are wanted. */
const loadList = () => import("./MessageList");
const loadSettings = () => import("../settings/SettingsPanel");
const MessageList = lazy(loadList);
const SettingsPanel = lazy(loadSettings);

/** Time after which a page that nobody touches has come up. */
const SETTLED_MS = 3000;

/** What somebody does first: what comes next is a message, or the settings. */
const TOUCHES = ["pointerdown", "pointermove", "keydown", "touchstart"] as const;

/** Brings the rest at the first touch, or when the page has come up. Returns what breaks that off. */
function bringRest(): () => void {
    const bring = () => {
        end();
        // A server that is away is told of elsewhere; what is wanted is asked for again.
        Promise.all([loadList(), loadSettings()]).catch(() => undefined);
    };
    const timer = setTimeout(bring, SETTLED_MS);
    for (const touch of TOUCHES) addEventListener(touch, bring, { passive: true });
    const end = () => {
        clearTimeout(timer);
        for (const touch of TOUCHES) removeEventListener(touch, bring);
    };
    return end;
}

function write(): void {
    document.getElementById("message")?.focus();
}

export default function ChatPage({ rest }: PageProps) {
    useEffect(bringRest, []);
    return rest ? <Old key={rest} id={rest} /> : <New />;
}

/** A conversation that begins with its first message. */
function New() {
    const { props } = useServer();
    const [settings, setSettings] = useState(newSettings);
    const [tab, setTab] = useState<string>();
    const title = props?.model.title ?? props?.model.name;
    const change = (settings: Settings) => {
        setSettings(settings);
        keepNewSettings(settings);
    };
    const send = (parts: Part[]) =>
        void startConversation(settings, parts).then((id) => navigate("chat", id, "replace"));
    useShortcuts({ settings: () => setTab("general"), write });
    return (
        <div className={styles.chat}>
            <Header title={<h1 className={styles.title}>New chat</h1>} onSettings={() => setTab("general")} />
            <div className={styles.welcome}>
                <img src="/icon.svg" alt="" width={52} height={52} />
                <h2>{title ?? "Bantam"}</h2>
                <p className="muted">What you write stays in this browser and on the machine that answers.</p>
            </div>
            <Composer
                draftKey={NEW}
                vision={props?.modalities.vision ?? false}
                busy={false}
                before={0}
                context={props?.context}
                quick={<QuickSettings settings={settings} onChange={change} onOpen={setTab} />}
                onSend={send}
                onStop={() => undefined}
                onEditLast={() => undefined}
            />
            {tab && (
                <Suspense>
                    <SettingsPanel
                        initial={tab}
                        settings={settings}
                        onChange={change}
                        onClose={() => setTab(undefined)}
                    />
                </Suspense>
            )}
        </div>
    );
}

function Old({ id }: { id: string }) {
    const shown = useConversation(id);
    if (shown === undefined) return <div className={styles.chat} aria-busy="true" />;
    if (shown === null) {
        return (
            <div className={styles.none}>
                <Notice
                    title="This conversation is not in this browser."
                    actions={<Button onClick={() => navigate("chat")}>New chat</Button>}
                >
                    It was deleted, or it was had in another browser: export it there and import it here.
                </Notice>
            </div>
        );
    }
    return <Conversation shown={shown} />;
}

function Conversation({ shown }: { shown: Shown }) {
    const { conversation, path } = shown;
    const { props } = useServer();
    const [tab, setTab] = useState<string>();
    const running = useStore(runs);
    const last = path.at(-1);
    const run = last && running.get(last.id);
    const latest = useRef(shown);
    latest.current = shown;
    const { id } = conversation;

    const send = useCallback((parts: Part[]) => void say(id, latest.current.path.at(-1)?.id ?? null, parts), [id]);
    const stop = useCallback(() => {
        const end = latest.current.path.at(-1);
        if (end) runs.get().get(end.id)?.stop();
    }, []);
    const editLast = useCallback(() => {
        const buttons = document.querySelectorAll<HTMLElement>('button[aria-label="Edit the message"]');
        buttons[buttons.length - 1]?.click();
    }, []);
    useShortcuts({
        settings: () => setTab("general"),
        write,
        stop,
        answerNow: () => void run?.answerNow().catch(() => undefined),
        retry: () => void (last?.role === "assistant" && last.parent !== null && !run && answer(id, last.parent)),
    });
    const change = (settings: Settings) => void changeSettings(id, settings);
    return (
        <div className={styles.chat}>
            <Header title={<Title title={conversation.title} id={id} />} onSettings={() => setTab("general")} />
            <Suspense fallback={<div className={styles.list} aria-busy="true" />}>
                <MessageList shown={shown} />
            </Suspense>
            <Unanswered last={last} />
            <Composer
                key={id}
                draftKey={id}
                vision={props?.modalities.vision ?? false}
                busy={run !== undefined}
                before={tokensSoFar(path)}
                context={props?.context}
                quick={<QuickSettings settings={conversation.settings} onChange={change} onOpen={setTab} />}
                onSend={send}
                onStop={stop}
                onEditLast={editLast}
            />
            {tab && (
                <Suspense>
                    <SettingsPanel
                        initial={tab}
                        settings={conversation.settings}
                        onChange={change}
                        onClose={() => setTab(undefined)}
                    />
                </Suspense>
            )}
            <Announcer last={last} />
        </div>
    );
}

/** As the last answer that told counted. */
function tokensSoFar(path: readonly Message[]): number {
    const usage = path.findLast((message) => message.answer?.usage)?.answer?.usage;
    return usage ? usage.prompt + usage.output - usage.thinking : 0;
}

/** A question without an answer, as after its answer was deleted. */
function Unanswered({ last }: { last: Message | undefined }) {
    if (last?.role !== "user") return null;
    return (
        <div className={styles.unanswered}>
            <Button onClick={() => void answer(last.conversation, last.id)}>Answer this</Button>
        </div>
    );
}

/** Tells those who do not see the page that an answer begins and ends. The text itself is read when they go to it. */
function Announcer({ last }: { last: Message | undefined }) {
    const state = last?.answer?.state;
    const words = useMemo(() => {
        switch (state) {
            case "streaming":
                return "Answering.";
            case "done":
                return `The answer is there: ${
                    textOf(last?.parts ?? [])
                        .split(/\s+/)
                        .filter(Boolean).length
                } words.`;
            case "stopped":
                return "The answer was stopped.";
            case "failed":
            case "interrupted":
                return last?.answer?.error?.message ?? "The answer did not end.";
            default:
                return "";
        }
    }, [state, last]);
    return (
        <p role="status" className="visually-hidden">
            {words}
        </p>
    );
}

function Header({ title, onSettings }: { title: ReactNode; onSettings: () => void }) {
    const bar = use(BarContext);
    const inside = (
        <>
            {title}
            <IconButton label="Settings of this chat" icon={Settings2} onClick={onSettings} />
        </>
    );
    return bar ? createPortal(inside, bar) : <header className={styles.header}>{inside}</header>;
}

function Title({ title, id }: { title: string; id: string }) {
    const [editing, setEditing] = useState(false);
    useEffect(() => {
        document.title = `${title} – Bantam`;
        return () => {
            document.title = "Bantam";
        };
    }, [title]);
    if (!editing) {
        return (
            <h1 className={styles.title}>
                <button type="button" title="Rename" onClick={() => setEditing(true)}>
                    {title}
                </button>
            </h1>
        );
    }
    const end = (given: string | undefined) => {
        if (given !== undefined) void rename(id, given);
        setEditing(false);
    };
    return (
        <input
            className={styles.rename}
            aria-label="Title"
            defaultValue={title}
            // biome-ignore lint/a11y/noAutofocus: it stands where the person just pressed.
            autoFocus
            onFocus={(event) => event.target.select()}
            onBlur={(event) => end(event.target.value)}
            onKeyDown={(event) => {
                if (event.key === "Enter") end(event.currentTarget.value);
                if (event.key === "Escape") end(undefined);
            }}
        />
    );
}
