import { apiKey, askForKey, setKey } from "../api/key";
import { checkServer, type ServerPhase, useServer } from "../api/server";
import { Button } from "../ui/Button";
import styles from "./ServerBanner.module.css";

const words: Record<Exclude<ServerPhase, "ok" | "connecting">, string> = {
    loading: "The server is starting.",
    draining: "The server is ending.",
    failed: "The model could not be loaded.",
    unreachable: "The server is away. This page reconnects by itself; nothing that you wrote is lost.",
    locked: "The server wants a key.",
};

/** Tells when the server is not there to answer. */
export function ServerBanner() {
    const { phase, reason } = useServer();
    if (phase === "ok" || phase === "connecting") return <div role="status" />;
    const unlock = async () => {
        if (await askForKey(apiKey())) checkServer();
        else setKey("");
    };
    return (
        <div role="status" className={styles.banner} data-phase={phase}>
            <span className={styles.dot} aria-hidden />
            <span>
                {words[phase]} {phase === "unreachable" || phase === "locked" ? "" : reason}
            </span>
            {phase === "locked" && (
                <Button small onClick={() => void unlock()}>
                    Enter the key
                </Button>
            )}
        </div>
    );
}
