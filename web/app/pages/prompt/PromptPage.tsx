import { Plus, Trash2 } from "lucide-react";
import { useEffect, useState } from "react";
import { requestJson } from "../../api/client";
import { type ApiError, asApiError } from "../../api/errors";
import { useServer } from "../../api/server";
import type { Conversation } from "../../db/types";
import type { PageProps } from "../../pages";
import { navigate } from "../../router";
import { Button, IconButton } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { AreaField, SelectField, Switch } from "../../ui/Field";
import { formatCount } from "../../ui/format";
import { ErrorNotice, Notice } from "../../ui/Notice";
import { PageFrame } from "../../ui/PageFrame";
import { Tabs } from "../../ui/Tabs";
import type { Token } from "../tokens/pieces";
import { TokenFacts, TokenText } from "../tokens/TokenText";
import { asked, type Draft, first, type Message, roles } from "./conversation";
import styles from "./Prompt.module.css";
import { useChats, useLastQuestion } from "./useChats";

const PAUSE_MS = 200;

/** What the template of the model makes of a conversation, token by token. The address may name one of the chats. */
export default function PromptPage({ rest }: PageProps) {
    const [tab, setTab] = useState(rest ? "chat" : "write");
    const [draft, setDraft] = useState(first);
    const chats = useChats();
    const chosen = chats?.find(({ id }) => id === rest) ?? chats?.[0];
    const question = useLastQuestion(chosen);
    const written = asked(draft);
    const wrong = "wrong" in written ? written.wrong : {};
    const body = tab === "chat" ? question : "body" in written ? written.body : undefined;
    const { rendered, error } = useRendered(body);
    return (
        <PageFrame
            title="Prompt"
            lead="What the model is shown of a conversation: the text that its template makes of it."
        >
            <div className={styles.columns}>
                <Tabs
                    label="Whose prompt"
                    selected={tab}
                    onSelect={setTab}
                    tabs={[
                        {
                            id: "write",
                            title: "Write one",
                            content: <Editor draft={draft} wrong={wrong} onChange={setDraft} />,
                        },
                        { id: "chat", title: "Of a chat", content: <ChatChoice chats={chats} chosen={chosen} /> },
                    ]}
                />
                <div className="stack">
                    {error && <ErrorNotice error={error} />}
                    {body && rendered && <Rendering {...rendered} />}
                </div>
            </div>
        </PageFrame>
    );
}

function ChatChoice({
    chats,
    chosen,
}: {
    chats: readonly Conversation[] | undefined;
    chosen: Conversation | undefined;
}) {
    if (!chats) return null;
    if (!chosen) {
        return (
            <Notice title="There is no chat yet.">
                Begin one on the page of the <a href="#/chat">chat</a>; its prompt then stands here.
            </Notice>
        );
    }
    return (
        <SelectField
            label="Chat"
            hint="what the model was shown when it gave the last answer of the branch"
            value={chosen.id}
            onChange={(event) => navigate("prompt", event.target.value, "replace")}
        >
            {chats.map(({ id, title }) => (
                <option key={id} value={id}>
                    {title}
                </option>
            ))}
        </SelectField>
    );
}

interface Rendered {
    prompt: string;
    n_tokens: number;
    tokens: Token[];
}

/** The prompt of a request, asked for when the typing pauses. */
function useRendered(body: Record<string, unknown> | undefined): { rendered?: Rendered; error?: ApiError } {
    const [told, setTold] = useState<{ rendered?: Rendered; error?: ApiError }>({});
    const text = body && JSON.stringify(body);
    useEffect(() => {
        if (text === undefined) return;
        const abort = new AbortController();
        const ask = async () => {
            try {
                const options = { body: JSON.parse(text) as unknown, signal: abort.signal, record: false };
                const rendered = await requestJson<Rendered>("/apply-template", options);
                if (!abort.signal.aborted) setTold({ rendered });
            } catch (failure) {
                if (!abort.signal.aborted) setTold({ error: asApiError(failure) });
            }
        };
        const timer = setTimeout(() => void ask(), PAUSE_MS);
        return () => {
            clearTimeout(timer);
            abort.abort();
        };
    }, [text]);
    return told;
}

function Rendering({ prompt, n_tokens, tokens }: Rendered) {
    const [at, setAt] = useState<number>();
    const [all, setAll] = useState(false);
    const special = tokens.filter((token) => token.special).length;
    return (
        <section className={styles.rendering} aria-label="The prompt">
            <div className={styles.facts}>
                <p>
                    <b>{formatCount(n_tokens)}</b> tokens, <b>{formatCount(special)}</b> of them control tokens
                </p>
                <Switch label="Colour every token" checked={all} onChange={(event) => setAll(event.target.checked)} />
                <CopyButton label="Copy the prompt" text={() => prompt} />
            </div>
            <TokenFacts token={at === undefined ? undefined : tokens[at]} index={at} />
            <TokenText
                label="Tokens of the prompt"
                tokens={tokens}
                at={at}
                onAt={setAt}
                colour={all ? "all" : "special"}
            />
        </section>
    );
}

interface EditorProps {
    draft: Draft;
    wrong: Partial<Record<keyof Draft, string>>;
    onChange: (draft: Draft) => void;
}

function Editor({ draft, wrong, onChange }: EditorProps) {
    const { props } = useServer();
    const { messages } = draft;
    const efforts = props?.reasoning_efforts ?? [];
    const setMessages = (messages: readonly Message[]) => onChange({ ...draft, messages });
    const add = () => {
        const key = Math.max(0, ...messages.map(({ key }) => key)) + 1;
        const role = messages.at(-1)?.role === "user" ? "assistant" : "user";
        setMessages([...messages, { key, role, content: "" }]);
    };
    return (
        <div className="stack">
            {messages.map((message, i) => (
                <MessageEditor
                    key={message.key}
                    message={message}
                    number={i + 1}
                    onChange={(changed) => setMessages(messages.map((other) => (other === message ? changed : other)))}
                    onRemove={
                        messages.length > 1 ? () => setMessages(messages.filter((m) => m !== message)) : undefined
                    }
                />
            ))}
            <div className="row">
                <Button icon={Plus} onClick={add}>
                    Add a message
                </Button>
            </div>
            {efforts.length > 0 && (
                <SelectField
                    label="Reasoning effort"
                    value={draft.effort}
                    onChange={(event) => onChange({ ...draft, effort: event.target.value })}
                >
                    <option value="">as the server does</option>
                    {efforts.map((effort) => (
                        <option key={effort}>{effort}</option>
                    ))}
                </SelectField>
            )}
            <AreaField
                label="Tools"
                hint="a JSON array, as requests have it"
                value={draft.tools}
                placeholder='[{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]'
                onChange={(event) => onChange({ ...draft, tools: event.target.value })}
                error={wrong.tools}
                className={styles.code}
            />
            <AreaField
                label="Template variables"
                hint="a JSON object (chat_template_kwargs)"
                value={draft.variables}
                onChange={(event) => onChange({ ...draft, variables: event.target.value })}
                error={wrong.variables}
                className={styles.code}
            />
        </div>
    );
}

interface MessageEditorProps {
    message: Message;
    number: number;
    onChange: (message: Message) => void;
    onRemove: (() => void) | undefined;
}

function MessageEditor({ message, number, onChange, onRemove }: MessageEditorProps) {
    return (
        <div className={styles.message}>
            <div className={styles.role}>
                <SelectField
                    label={`Role of message ${number}`}
                    labelHidden
                    value={message.role}
                    onChange={(event) => onChange({ ...message, role: event.target.value })}
                >
                    {roles.map((role) => (
                        <option key={role}>{role}</option>
                    ))}
                </SelectField>
                {onRemove && <IconButton label={`Remove message ${number}`} icon={Trash2} small onClick={onRemove} />}
            </div>
            <AreaField
                label={`Text of message ${number}`}
                labelHidden
                value={message.content}
                onChange={(event) => onChange({ ...message, content: event.target.value })}
                className={styles.text}
            />
        </div>
    );
}
