import { RotateCcw, StepForward } from "lucide-react";
import type { AnswerInfo, Message } from "../db/types";
import { canContinue } from "../protocols/continuation";
import { Button } from "../ui/Button";
import { Notice } from "../ui/Notice";
import { goOn, retry } from "./actions";
import styles from "./Message.module.css";

/** How an answer ended, where that is not by itself; and what can be done about it. */
export function Ending({ message, info }: { message: Message; info: AnswerInfo | undefined }) {
    if (!info) return null;
    const buttons = (
        <>
            <Button small icon={RotateCcw} onClick={() => void retry(message)}>
                Retry
            </Button>
            {canContinue(message) && (
                <Button small icon={StepForward} onClick={() => void goOn(message)}>
                    Continue
                </Button>
            )}
        </>
    );
    switch (info.state) {
        case "failed":
        case "interrupted":
            return (
                <div className={styles.ending}>
                    <Notice
                        tone={info.state === "failed" ? "bad" : "warn"}
                        title={info.error?.message ?? "The answer did not end."}
                        actions={buttons}
                    >
                        {info.error?.advice}
                    </Notice>
                </div>
            );
        case "stopped":
            return (
                <div className={styles.ended}>
                    <span className="muted">Stopped.</span> {buttons}
                </div>
            );
        default:
            if (info.finish !== "length") return null;
            return (
                <div className={styles.ended}>
                    <span className="muted">The longest answer was reached.</span> {buttons}
                </div>
            );
    }
}
