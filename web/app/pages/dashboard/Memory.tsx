import type { Memory } from "../../api/runtime";
import { Card } from "../../ui/Card";
import { formatMemory, formatShare } from "../../ui/format";
import styles from "./Memory.module.css";

interface Part {
    name: string;
    bytes: number;
    /** Free memory is not coloured. */
    free?: boolean;
}

/** Who holds how much memory. */
export function MemoryCard({ memory }: { memory: Memory }) {
    const { ledger, state, machine, device } = memory;
    const stateFree = Math.max(0, state.budget_bytes - state.held_bytes - state.cached_bytes);
    return (
        <Card title="Memory" aside={ledger.entries[0]?.owner}>
            <Bar
                title={device ? "Ledger of the host" : "Ledger"}
                hint="what was set aside when the model was loaded"
                parts={taken(ledger.entries, ledger.free_bytes)}
            />
            {device && (
                <Bar
                    title={`Ledger of ${device.name}`}
                    hint="the same on the device that the model lies on; state takes its part as it is written"
                    parts={taken(device.entries, device.free_bytes)}
                />
            )}
            <Bar
                title="State of sequences"
                hint="keys, values and recurrent state; what is cached gives way to what runs"
                parts={[
                    { name: "held by running requests", bytes: state.held_bytes },
                    { name: "kept for later requests", bytes: state.cached_bytes },
                    { name: "free", bytes: stateFree, free: true },
                ]}
            />
            <MachineBar machine={machine} />
            <p className="muted">
                {memory.cache_file_bytes === null
                    ? "The cache is not saved to a disk (--cache-dir)."
                    : `The cache on the disk: ${formatMemory(memory.cache_file_bytes)}.`}{" "}
                Stored responses: {formatMemory(memory.stored_responses_bytes)}.
            </p>
        </Card>
    );
}

/** What was taken of a memory, and what of it is free. */
function taken(entries: Memory["ledger"]["entries"], free: number | null): Part[] {
    const parts: Part[] = entries.map(({ what, bytes }) => ({ name: what, bytes }));
    return free === null ? parts : [...parts, { name: "left free", bytes: free, free: true }];
}

function MachineBar({ machine }: { machine: Memory["machine"] }) {
    const { total_bytes: total, available_bytes: available, process_bytes: own } = machine;
    if (total === null || available === null || own === null) return null;
    const others = Math.max(0, total - available - own);
    return (
        <Bar
            title="Machine"
            hint="mapped files count for the process, and as free where the system can drop them"
            parts={[
                { name: "this process", bytes: Math.min(own, total) },
                { name: "others", bytes: others },
                { name: "free", bytes: Math.max(0, total - own - others), free: true },
            ]}
        />
    );
}

function Bar({ title, hint, parts }: { title: string; hint: string; parts: readonly Part[] }) {
    const total = Math.max(
        1,
        parts.reduce((sum, part) => sum + part.bytes, 0),
    );
    const shown = parts.filter((part) => part.bytes > 0 || !part.free);
    return (
        <div className={styles.part}>
            <h3>
                {title} <span className={styles.total}>{formatMemory(total)}</span>
            </h3>
            <div className={styles.bar} aria-hidden>
                {shown.map((part, i) => (
                    <span
                        key={part.name}
                        data-colour={part.free ? "free" : i % 6}
                        style={{ flexGrow: part.bytes / total }}
                        title={`${part.name}: ${formatMemory(part.bytes)}`}
                    />
                ))}
            </div>
            <ul className={styles.legend}>
                {shown.map((part, i) => (
                    <li key={part.name}>
                        <span className={styles.swatch} data-colour={part.free ? "free" : i % 6} aria-hidden />
                        <span className={styles.name}>{part.name}</span>
                        <span className={styles.size}>
                            {formatMemory(part.bytes)} <small>{formatShare(part.bytes / total)}</small>
                        </span>
                    </li>
                ))}
            </ul>
            <p className="muted">{hint}</p>
        </div>
    );
}
