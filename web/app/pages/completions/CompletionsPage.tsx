import { CornerUpLeft, Eraser, Play, Square, StepForward } from "lucide-react";
import { useState } from "react";
import { Button } from "../../ui/Button";
import { Card } from "../../ui/Card";
import { AreaField } from "../../ui/Field";
import { formatCount, formatFigure, formatMs } from "../../ui/format";
import { ErrorNotice } from "../../ui/Notice";
import { PageFrame } from "../../ui/PageFrame";
import { Alternatives } from "./Alternatives";
import styles from "./Completions.module.css";
import { OptionsForm } from "./OptionsForm";
import { Output } from "./Output";
import { defaults, type Options, problems } from "./options";
import { type Alternative, perplexity, textOf } from "./tokens";
import { type Completion, useCompletion } from "./useCompletion";
import { usePointed } from "./usePointed";

const FIRST = "The three most curious facts about chickens are:\n\n1.";

/** Raw completions: no template, every token with its probability. */
export default function CompletionsPage() {
    const [prompt, setPrompt] = useState(FIRST);
    const [options, setOptions] = useState<Options>(defaults);
    const { completion, generate, stop, clear } = useCompletion();
    const { tokens, running, error } = completion;
    const pointed = usePointed(tokens.length);
    const wrong = problems(options);
    const ready = Object.keys(wrong).length === 0 && !running;

    const regenerate = (index: number, instead?: Alternative) => {
        const kept = tokens.slice(0, index);
        const there = tokens[index];
        const chosen = instead && there ? [{ ...instead, top: there.top }] : [];
        void generate(prompt, options, [...kept, ...chosen]);
    };
    const takeUp = () => {
        setPrompt(prompt + textOf(tokens));
        clear();
    };
    return (
        <PageFrame title="Completions" lead="The model goes on from a text as it is, without a chat template.">
            <div className={styles.columns}>
                <div className="stack">
                    <AreaField
                        label="Prompt"
                        value={prompt}
                        onChange={(event) => setPrompt(event.target.value)}
                        onKeyDown={(event) => {
                            if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && ready) {
                                event.preventDefault();
                                void generate(prompt, options);
                            }
                        }}
                        className={styles.prompt}
                        spellCheck={false}
                        hint="Spellings of control tokens are taken for the tokens. Ctrl+Enter generates."
                    />
                    <div className="row">
                        {running ? (
                            <Button look="primary" icon={Square} onClick={stop}>
                                Stop
                            </Button>
                        ) : (
                            <Button
                                look="primary"
                                icon={Play}
                                disabled={!ready}
                                onClick={() => void generate(prompt, options)}
                            >
                                Generate
                            </Button>
                        )}
                        <Button
                            icon={StepForward}
                            disabled={!ready || tokens.length === 0}
                            onClick={() => void generate(prompt, options, tokens)}
                        >
                            Continue
                        </Button>
                        <Button icon={CornerUpLeft} disabled={running || tokens.length === 0} onClick={takeUp}>
                            Take into the prompt
                        </Button>
                        <Button look="quiet" icon={Eraser} disabled={tokens.length === 0} onClick={clear}>
                            Clear
                        </Button>
                    </div>
                    {error && <ErrorNotice error={error} />}
                    <Card title="Output" aside={<Outcome completion={completion} />}>
                        <Output {...{ tokens, running, pointed }} />
                    </Card>
                </div>
                <div className={`stack ${styles.side}`}>
                    {tokens.length > 0 && (
                        <Alternatives {...{ tokens, pointed }} onRegenerate={ready ? regenerate : undefined} />
                    )}
                    <Card title="Sampling">
                        <OptionsForm options={options} wrong={wrong} onChange={setOptions} />
                    </Card>
                </div>
            </div>
        </PageFrame>
    );
}

const endings: Record<string, string> = {
    stop: "ended by itself or at a stop text",
    length: "cut off at max tokens",
    stopped: "stopped",
};

function Outcome({ completion }: { completion: Completion }) {
    const { tokens, running, finish, usage, firstMs, speed } = completion;
    const cached = usage?.prompt_tokens_details?.cached_tokens;
    const open = perplexity(tokens);
    const told = [
        tokens.length > 0 && `${formatCount(tokens.length)} tokens`,
        firstMs !== undefined && `first after ${formatMs(firstMs)}`,
        speed !== undefined && `${formatFigure(speed)} tok/s`,
        open !== undefined && `perplexity ${formatFigure(open)}`,
        usage && `prompt ${formatCount(usage.prompt_tokens)}${cached ? `, ${formatCount(cached)} cached` : ""}`,
        running ? "generating…" : finish && (endings[finish] ?? finish),
    ].filter((text) => typeof text === "string");
    return <span data-part="outcome">{told.join(" · ")}</span>;
}
