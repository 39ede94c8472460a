import type { Queued, Slot, SlotState } from "../../api/runtime";
import { Card } from "../../ui/Card";
import { formatCount, formatFigure, formatMs, formatShare } from "../../ui/format";
import styles from "./Slots.module.css";

const words: Record<SlotState, string> = {
    idle: "idle",
    waiting: "waiting",
    prefill: "reading",
    decode: "writing",
    blocked: "blocked",
};

/** Who computes, who waits for whom, and who shares what with whom. */
export function Slots({ slots, queue }: { slots: readonly Slot[]; queue: readonly Queued[] }) {
    const busy = slots.filter(({ state }) => state !== "idle").length;
    return (
        <Card title="Slots" aside={`${busy} of ${slots.length} busy`}>
            <ul className={styles.slots}>
                {slots.map((slot) => (
                    <SlotRow key={slot.id} slot={slot} />
                ))}
            </ul>
            {queue.length > 0 && <Queue queue={queue} />}
        </Card>
    );
}

function SlotRow({ slot }: { slot: Slot }) {
    const speed = slot.decoding_ms && slot.generated > 1 ? slot.generated / (slot.decoding_ms / 1000) : undefined;
    return (
        <li className={styles.slot} data-state={slot.state}>
            <span className={styles.id}>Slot {slot.id}</span>
            <span className={styles.state}>{words[slot.state]}</span>
            {slot.id_task === null ? (
                <span className={styles.nothing}>free for the next request</span>
            ) : (
                <>
                    <span className={styles.task}>request {slot.id_task}</span>
                    <PromptBar slot={slot} />
                    <span className={styles.tokens}>
                        {formatCount(slot.generated)} written
                        {speed === undefined ? "" : ` · ${formatFigure(speed)} tok/s`}
                    </span>
                    <span className={styles.time}>{formatMs(slot.in_slot_ms ?? 0)}</span>
                    <Relations slot={slot} />
                </>
            )}
        </li>
    );
}

function PromptBar({ slot }: { slot: Slot }) {
    const { prompt_tokens, prompt_done, cached_tokens, n_ctx, generated } = slot;
    const of = Math.max(1, prompt_tokens);
    const cached = Math.min(cached_tokens, prompt_tokens);
    const computed = Math.max(0, prompt_done - cached);
    const window = (prompt_tokens + generated) / Math.max(1, n_ctx);
    return (
        <span className={styles.prompt}>
            <span className={styles.bar} aria-hidden>
                <span className={styles.cached} style={{ width: `${(100 * cached) / of}%` }} />
                <span className={styles.computed} style={{ width: `${(100 * computed) / of}%` }} />
            </span>
            <span className={styles.read}>
                {formatCount(prompt_done)} of {formatCount(prompt_tokens)} read, {formatCount(cached)} cached ·{" "}
                {formatShare(window)} of the window
            </span>
        </span>
    );
}

function Relations({ slot }: { slot: Slot }) {
    const told = [
        slot.waits_for !== null && `waits for request ${slot.waits_for}, which computes the same beginning`,
        slot.shares_with !== null && `shares its beginning with request ${slot.shares_with}`,
        slot.state === "blocked" && "its client does not read",
        slot.miss && `cached up to token ${formatCount(slot.miss.at)}: ${slot.miss.why}`,
    ].filter((text) => typeof text === "string");
    return told.length > 0 ? <span className={styles.relations}>{told.join(" · ")}</span> : null;
}

function Queue({ queue }: { queue: readonly Queued[] }) {
    return (
        <div className={styles.queue}>
            <h3>Queue</h3>
            <ol>
                {queue.map(({ id_task, prompt_tokens, waiting_ms }) => (
                    <li key={id_task}>
                        request {id_task} · {formatCount(prompt_tokens)} tokens · waits {formatMs(waiting_ms)}
                    </li>
                ))}
            </ol>
        </div>
    );
}
