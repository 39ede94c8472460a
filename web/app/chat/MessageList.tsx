import { ArrowDown } from "lucide-react";
import type { Message } from "../db/types";
import type { Settings } from "../settings/settings";
import { IconButton } from "../ui/Button";
import { Lazy } from "../ui/Lazy";
import { useStore } from "../ui/store";
import { AnswerView } from "./AnswerView";
import styles from "./MessageList.module.css";
import { QuestionView } from "./QuestionView";
import { runs } from "./runs";
import type { Shown } from "./useConversation";
import { useStick } from "./useStick";

/** Messages up to which all are on the page, where the browser's search finds them. */
const SHORT = 40;

/** Messages that come and go together. */
const GROUP = 8;

/** The messages of the shown branch; those far from the screen keep only their room. */
export default function MessageList({ shown }: { shown: Shown }) {
    const { conversation, tree, path } = shown;
    const { scroller, content, atEnd, toEnd } = useStick(conversation.id);
    const running = useStore(runs);
    return (
        <div className={styles.frame}>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the conversation is scrolled by the keyboard too. */}
            <section ref={scroller} className={styles.scroller} tabIndex={0} aria-label="Conversation">
                <div ref={content} className={styles.column}>
                    {groups(path).map(([first, messages]) => (
                        <Lazy
                            key={messages[0]?.id}
                            estimate={messages.reduce((sum, message) => sum + estimate(message), 0)}
                            pinned={
                                path.length <= SHORT ||
                                first + GROUP >= path.length - 2 ||
                                messages.some((message) => running.has(message.id))
                            }
                        >
                            {messages.map((message, at) =>
                                message.role === "tool" ? null : (
                                    <One
                                        key={message.id}
                                        message={message}
                                        siblings={tree.siblings(message)}
                                        next={path[first + at + 1]}
                                        answered={path[first + at + 2] !== undefined}
                                        settings={conversation.settings}
                                    />
                                ),
                            )}
                        </Lazy>
                    ))}
                </div>
            </section>
            {!atEnd && (
                <div className={styles.jump}>
                    <IconButton label="To the newest" icon={ArrowDown} onClick={toEnd} />
                </div>
            )}
        </div>
    );
}

/** Messages in groups, each with the place of its first: what is watched costs each frame. */
function groups(path: readonly Message[]): [number, Message[]][] {
    return Array.from({ length: Math.ceil(path.length / GROUP) }, (_, index) => {
        const first = index * GROUP;
        return [first, path.slice(first, first + GROUP)];
    });
}

interface OneProps {
    message: Message;
    siblings: readonly Message[];
    next: Message | undefined;
    answered: boolean;
    settings: Settings;
}

function One({ message, siblings, next, answered, settings }: OneProps) {
    if (message.role === "user") return <QuestionView message={message} siblings={siblings} />;
    const results = next?.role === "tool" ? next : undefined;
    return <AnswerView {...{ message, siblings, results, settings }} answered={results ? answered : false} />;
}

/** About how high a message is, before it was seen. */
function estimate(message: Message): number {
    const characters = message.parts.reduce((sum, part) => sum + (part.kind === "text" ? part.text.length : 80), 0);
    return 80 + characters / 3;
}
