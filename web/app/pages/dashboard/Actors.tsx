import type { Actor } from "../../api/runtime";
import { Card } from "../../ui/Card";
import styles from "./Actors.module.css";

/** What each actor is there for; slots are told by their number. */
const purposes: Record<string, string> = {
    root: "starts everything, and starts it again",
    registry: "opens the model and keeps the memory ledger",
    model: "watches over the actors of the model",
    scheduler: "decides who is computed next",
    kv: "owns the pages of state and the tree of prefixes",
    executor: "owns the program and its thread",
    experts: "counts which experts are used",
    turns: "remembers what was generated, to find it again",
    archive: "saves the cache to the disk",
};

function purpose(name: string): string | undefined {
    return name.startsWith("slot ") ? "makes events of tokens" : purposes[name];
}

function total(actor: Actor): { actors: number; restarts: number } {
    return actor.children
        .map(total)
        .reduce((sum, below) => ({ actors: sum.actors + below.actors, restarts: sum.restarts + below.restarts }), {
            actors: 1,
            restarts: actor.restarts,
        });
}

/** The tree of actors with how often each was started again. */
export function Actors({ top }: { top: Actor }) {
    const { actors, restarts } = total(top);
    return (
        <Card title="Actors" aside={`${actors} actors, ${restarts === 0 ? "no restarts" : `${restarts} restarts`}`}>
            <ul className={styles.tree}>
                <Branch actor={top} />
            </ul>
        </Card>
    );
}

function Branch({ actor }: { actor: Actor }) {
    return (
        <li className={styles.branch}>
            <div className={styles.actor} data-state={actor.state}>
                <span className={styles.dot} aria-hidden />
                <span className={styles.name}>{actor.name}</span>
                {actor.state !== "running" && <span className={styles.stopped}>stopped</span>}
                {actor.restarts > 0 && (
                    <span className={styles.restarts}>
                        started again {actor.restarts === 1 ? "once" : `${actor.restarts} times`}
                    </span>
                )}
                <span className={styles.purpose}>{purpose(actor.name)}</span>
            </div>
            {actor.failures > 0 && (
                <p className={styles.failure}>
                    failed {actor.failures === 1 ? "once" : `${actor.failures} times`}
                    {actor.last_failure && `, last: ${actor.last_failure}`}
                </p>
            )}
            {actor.children.length > 0 && (
                <ul className={styles.tree}>
                    {actor.children.map((child) => (
                        <Branch key={child.name} actor={child} />
                    ))}
                </ul>
            )}
        </li>
    );
}
