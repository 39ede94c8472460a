import { Fragment } from "react";
import { Dialog } from "../ui/Dialog";
import { useStore } from "../ui/store";
import styles from "./HelpDialog.module.css";
import { helpOpen, shortcuts } from "./shortcuts";

export function HelpDialog() {
    if (!useStore(helpOpen)) return null;
    return (
        <Dialog title="Keys" onClose={() => helpOpen.set(false)}>
            <dl className={styles.keys}>
                {shortcuts.map(({ keys, what }) => (
                    <Fragment key={what}>
                        <dt>
                            {keys.map((key) => (
                                <kbd key={key}>{key}</kbd>
                            ))}
                        </dt>
                        <dd>{what}</dd>
                    </Fragment>
                ))}
            </dl>
        </Dialog>
    );
}
