import { FileText, X } from "lucide-react";
import { IconButton } from "../ui/Button";
import { plural } from "../ui/format";
import { Notice } from "../ui/Notice";
import styles from "./Attachments.module.css";
import type { Attachment } from "./drafts";

interface AttachmentsProps {
    attachments: readonly Attachment[];
    /** Files that are being read. */
    reading: number;
    onRemove: (attachment: Attachment) => void;
}

/** What goes along with the message. */
export function Attachments({ attachments, reading, onRemove }: AttachmentsProps) {
    if (attachments.length + reading === 0) return null;
    return (
        <ul className={styles.attachments} aria-label="Attached">
            {attachments.map((one, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: two files may be the same.
                <li key={index} className={styles.attachment}>
                    {one.kind === "image" ? (
                        <img src={one.url} alt="" className={styles.thumb} />
                    ) : (
                        <FileText size={15} aria-hidden />
                    )}
                    <span className={styles.name}>{one.name}</span>
                    {one.kind === "file" && one.tokens !== undefined && (
                        <span className={styles.size}>{plural(one.tokens, "token")}</span>
                    )}
                    <IconButton label={`Remove ${one.name}`} icon={X} small onClick={() => onRemove(one)} />
                </li>
            ))}
            {reading > 0 && <li className={styles.attachment}>Reading {plural(reading, "file")}…</li>}
        </ul>
    );
}

/** Files that were not taken: why, and what to do. */
export function Refused({ reasons, onClose }: { reasons: readonly string[]; onClose: () => void }) {
    if (reasons.length === 0) return null;
    return (
        <div className={styles.refused}>
            <Notice
                tone="bad"
                role="alert"
                title={reasons.map((reason, index) => (
                    // biome-ignore lint/suspicious/noArrayIndexKey: two files may be refused for the same reason.
                    <span key={index} className={styles.reason}>
                        {reason}
                    </span>
                ))}
            />
            <IconButton label="Dismiss" icon={X} small onClick={onClose} />
        </div>
    );
}
