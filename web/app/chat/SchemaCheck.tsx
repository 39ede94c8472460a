import { CircleCheck, CircleX } from "lucide-react";
import { useEffect, useState } from "react";
import styles from "./Message.module.css";

type Verdict = { fits: true } | { fits: false; problems: string[] };

const SHOWN = 5;

/** Whether an answer keeps to the schema that it was asked for. */
export function SchemaCheck({ schema, text }: { schema: unknown; text: string }) {
    const [verdict, setVerdict] = useState<Verdict>();
    useEffect(() => {
        let there = true;
        void validate(schema, text).then((told) => there && setVerdict(told));
        return () => {
            there = false;
        };
    }, [schema, text]);
    if (!verdict) return null;
    if (verdict.fits) {
        return (
            <p className={styles.fits} data-verdict="fits">
                <CircleCheck size={15} aria-hidden /> Keeps to the schema
            </p>
        );
    }
    return (
        <div className={styles.misfit} data-verdict="misfit">
            <p>
                <CircleX size={15} aria-hidden /> Does not keep to the schema
            </p>
            <ul>
                {verdict.problems.slice(0, SHOWN).map((problem) => (
                    <li key={problem}>{problem}</li>
                ))}
            </ul>
        </div>
    );
}

async function validate(schema: unknown, text: string): Promise<Verdict> {
    let value: unknown;
    try {
        value = JSON.parse(text);
    } catch (failure) {
        return { fits: false, problems: [`It is not JSON: ${failure instanceof Error ? failure.message : failure}`] };
    }
    // An interpreter: the page's policy lets nothing compile a schema into code.
    const { Validator } = await import("@cfworker/json-schema");
    const result = new Validator(schema as object, "2020-12", false).validate(value);
    if (result.valid) return { fits: true };
    const problems = result.errors.map((error) => `${error.instanceLocation.replace(/^#/, "") || "/"}: ${error.error}`);
    return { fits: false, problems: [...new Set(problems)].reverse() };
}
