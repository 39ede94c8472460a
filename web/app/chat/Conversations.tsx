import { liveQuery } from "dexie";
import { Braces, Download, FileText, Keyboard, Pencil, Plus, Search, Trash2, Upload } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { deleteConversations, rename, search } from "../db/conversations";
import { exportJson, exportMarkdown, ImportError, importText } from "../db/transfer";
import type { Conversation } from "../db/types";
import { href, navigate, useRoute } from "../router";
import { Button } from "../ui/Button";
import { download } from "../ui/download";
import { plural } from "../ui/format";
import { Menu } from "../ui/Menu";
import { useStore } from "../ui/store";
import { toast } from "../ui/toasts";
import styles from "./Conversations.module.css";
import { runs } from "./runs";
import { helpOpen, useShortcuts } from "./shortcuts";

/** All conversations, newest first, with what can be done to them. */
export default function Conversations({ onLeave }: { onLeave: () => void }) {
    const [query, setQuery] = useState("");
    const found = useFound(query);
    const route = useRoute();
    const field = useRef<HTMLInputElement>(null);
    const picker = useRef<HTMLInputElement>(null);
    const current = route.page === "chat" ? route.rest : "";
    const groups = useMemo(() => grouped(found ?? []), [found]);
    const start = () => {
        navigate("chat");
        onLeave();
        requestAnimationFrame(() => document.getElementById("message")?.focus());
    };
    useShortcuts({
        newChat: start,
        search: () => field.current?.focus(),
        step: (by) => {
            const all = found ?? [];
            const at = all.findIndex((one) => one.id === current);
            const next = all[at < 0 ? 0 : at + by];
            if (next) navigate("chat", next.id);
        },
    });
    return (
        <div className={styles.all}>
            <div className={styles.head}>
                <div className={styles.brand}>
                    <img src="/icon.svg" alt="" width={24} height={24} />
                    <span>Bantam</span>
                    <Menu
                        label="All conversations"
                        className={styles.more}
                        items={[
                            { label: "Import…", icon: Upload, run: () => picker.current?.click() },
                            { label: "Export all", icon: Download, run: () => void saveAll() },
                            { label: "Keys", icon: Keyboard, run: () => helpOpen.set(true) },
                            { label: "Delete all", icon: Trash2, danger: true, run: () => void removeAll() },
                        ]}
                    />
                </div>
                <Button icon={Plus} onClick={start}>
                    New chat
                </Button>
                <div className={styles.search}>
                    <Search size={15} aria-hidden />
                    <input
                        ref={field}
                        type="search"
                        aria-label="Search conversations"
                        placeholder="Search"
                        value={query}
                        onChange={(event) => setQuery(event.target.value)}
                        onKeyDown={(event) => event.key === "Escape" && setQuery("")}
                    />
                </div>
                <input
                    ref={picker}
                    type="file"
                    accept=".json,.md,application/json,text/markdown"
                    hidden
                    aria-label="File to import"
                    onChange={(event) => {
                        const file = event.target.files?.[0];
                        event.target.value = "";
                        if (file) void importFile(file);
                    }}
                />
            </div>
            <nav className={styles.list} aria-label="Conversations">
                {groups.map(({ title, conversations }) => (
                    <section key={title} aria-label={title}>
                        <h2 className={styles.group}>{title}</h2>
                        <ul>
                            {conversations.map((one) => (
                                <Row key={one.id} conversation={one} current={one.id === current} onLeave={onLeave} />
                            ))}
                        </ul>
                    </section>
                ))}
                {found?.length === 0 && (
                    <p className={styles.none}>{query ? "Nothing has these words." : "No conversations yet."}</p>
                )}
            </nav>
        </div>
    );
}

/** Conversations with these words; looked for again whenever one changes, and when the person pauses. */
function useFound(query: string): Conversation[] | undefined {
    const [found, setFound] = useState<Conversation[]>();
    useEffect(() => {
        let subscription: { unsubscribe: () => void } | undefined;
        const timer = setTimeout(
            () => {
                subscription = liveQuery(() => search(query)).subscribe(setFound, (failure) => console.error(failure));
            },
            query ? 150 : 0,
        );
        return () => {
            clearTimeout(timer);
            subscription?.unsubscribe();
        };
    }, [query]);
    return found;
}

interface RowProps {
    conversation: Conversation;
    current: boolean;
    onLeave: () => void;
}

function Row({ conversation, current, onLeave }: RowProps) {
    const [renaming, setRenaming] = useState(false);
    const { id, title } = conversation;
    const busy = [...useStore(runs).values()].some((run) => run.message.conversation === id);
    if (renaming) {
        const end = (given: string | undefined) => {
            if (given !== undefined) void rename(id, given);
            setRenaming(false);
        };
        return (
            <li className={styles.row}>
                <input
                    className={styles.rename}
                    aria-label="Title"
                    defaultValue={title}
                    // biome-ignore lint/a11y/noAutofocus: the person just asked for it.
                    autoFocus
                    onFocus={(event) => event.target.select()}
                    onBlur={(event) => end(event.target.value)}
                    onKeyDown={(event) => {
                        if (event.key === "Enter") end(event.currentTarget.value);
                        if (event.key === "Escape") end(undefined);
                    }}
                />
            </li>
        );
    }
    return (
        <li className={styles.row} data-current={current || undefined}>
            <a href={href("chat", id)} onClick={onLeave} aria-current={current ? "page" : undefined} title={title}>
                {title}
            </a>
            {busy && <span className={styles.busy} role="img" aria-label="Being answered" />}
            <Menu
                label={`More about ${title}`}
                className={styles.more}
                items={[
                    { label: "Rename", icon: Pencil, run: () => setRenaming(true) },
                    { label: "Export as JSON", icon: Braces, run: () => void saveJson(conversation) },
                    { label: "Export as Markdown", icon: FileText, run: () => void saveMarkdown(conversation) },
                    { label: "Delete", icon: Trash2, danger: true, run: () => void remove(conversation, current) },
                ]}
            />
        </li>
    );
}

interface Group {
    title: string;
    conversations: Conversation[];
}

const DAY_MS = 86_400_000;

function grouped(conversations: readonly Conversation[]): Group[] {
    const today = new Date().setHours(0, 0, 0, 0);
    const groups: Group[] = [];
    for (const conversation of conversations) {
        const days = (today - conversation.updated) / DAY_MS;
        const title = days <= 0 ? "Today" : days <= 1 ? "Yesterday" : days <= 7 ? "The last week" : "Earlier";
        const last = groups.at(-1);
        if (last?.title === title) last.conversations.push(conversation);
        else groups.push({ title, conversations: [conversation] });
    }
    return groups;
}

function fileName(title: string): string {
    return (
        title
            .replace(/[^\p{L}\p{N} ._-]+/gu, "")
            .trim()
            .slice(0, 60) || "conversation"
    );
}

async function saveJson({ id, title }: Conversation): Promise<void> {
    download(`${fileName(title)}.json`, await exportJson([id]), "application/json");
}

async function saveMarkdown({ id, title }: Conversation): Promise<void> {
    download(`${fileName(title)}.md`, await exportMarkdown(id), "text/markdown");
}

async function saveAll(): Promise<void> {
    const day = new Date().toISOString().slice(0, 10);
    download(`bantam-${day}.json`, await exportJson(), "application/json");
}

async function importFile(file: File): Promise<void> {
    try {
        const count = await importText(await file.text());
        toast(`Imported ${plural(count, "conversation")}.`, { tone: "good" });
    } catch (failure) {
        toast(failure instanceof ImportError ? failure.message : "The file could not be imported.", { tone: "bad" });
    }
}

async function remove({ id, title }: Conversation, current: boolean): Promise<void> {
    stopRuns([id]);
    const undo = await deleteConversations([id]);
    if (current) navigate("chat", "", "replace");
    const back = () => void undo().then(() => current && navigate("chat", id));
    toast(`Deleted “${title}”.`, { action: { label: "Undo", run: back } });
}

async function removeAll(): Promise<void> {
    const ids = (await search("")).map((one) => one.id);
    if (ids.length === 0) return;
    stopRuns(ids);
    const undo = await deleteConversations(ids);
    navigate("chat", "", "replace");
    toast(`Deleted ${plural(ids.length, "conversation")}.`, { action: { label: "Undo", run: () => void undo() } });
}

function stopRuns(ids: readonly string[]): void {
    for (const run of runs.get().values()) if (ids.includes(run.message.conversation)) run.stop();
}
