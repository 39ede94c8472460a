import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";
import { IconButton } from "./Button";
import { copyText } from "./copy";
import { toast } from "./toasts";

/** Copies a text; it is asked for only when the button is pressed. */
export function CopyButton({ label, text }: { label: string; text: () => string }) {
    const [done, setDone] = useState(false);
    useEffect(() => {
        if (!done) return;
        const timer = setTimeout(() => setDone(false), 1500);
        return () => clearTimeout(timer);
    }, [done]);
    const copy = async () => {
        if (await copyText(text())) setDone(true);
        else toast("The browser did not let the page copy. Select the text and copy it by hand.", { tone: "bad" });
    };
    return <IconButton label={done ? "Copied" : label} icon={done ? Check : Copy} small onClick={() => void copy()} />;
}
