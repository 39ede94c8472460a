import { Search } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { requestJson } from "../../api/client";
import { type ApiError, asApiError } from "../../api/errors";
import { useServer } from "../../api/server";
import { Card } from "../../ui/Card";
import { TextField } from "../../ui/Field";
import { formatCount, formatFigure, formatMemory, plural } from "../../ui/format";
import { ErrorNotice } from "../../ui/Notice";
import { PageFrame } from "../../ui/PageFrame";
import { Tabs } from "../../ui/Tabs";
import { VirtualList } from "../../ui/VirtualList";
import { type Folded, fold } from "./fold";
import styles from "./Graph.module.css";
import { type GraphAnswer, type Model, type Node, parameters, resolve } from "./model";
import { NodeDetail } from "./NodeDetail";
import { RepeatView } from "./RepeatView";
import { SectionView } from "./SectionView";

/** The model as the ops that are run. */
export default function GraphPage() {
    const { epoch } = useServer();
    const [answer, setAnswer] = useState<GraphAnswer>();
    const [error, setError] = useState<ApiError>();
    useEffect(() => {
        // A server that came back may have another model; before the first time there is none.
        if (epoch === 0) return;
        const abort = new AbortController();
        requestJson<GraphAnswer>("/graph", { signal: abort.signal }).then(
            (told) => {
                setAnswer(told);
                setError(undefined);
            },
            (failure) => !abort.signal.aborted && setError(asApiError(failure)),
        );
        return () => abort.abort();
    }, [epoch]);
    const [tab, setTab] = useState("model");
    return (
        <PageFrame title="Graph" lead="What the model computes, from token ids to logits.">
            {error && <ErrorNotice error={error} />}
            {answer &&
                (answer.draft ? (
                    <Tabs
                        label="Graphs of the model"
                        selected={tab}
                        onSelect={setTab}
                        tabs={[
                            { id: "model", title: "Model", content: <GraphView answer={answer} which="graph" /> },
                            { id: "draft", title: "Draft", content: <GraphView answer={answer} which="draft" /> },
                        ]}
                    />
                ) : (
                    <GraphView answer={answer} which="graph" />
                ))}
        </PageFrame>
    );
}

function GraphView({ answer, which }: { answer: GraphAnswer; which: "graph" | "draft" }) {
    const model = useMemo(() => {
        const graph = which === "draft" ? answer.draft?.graph : answer.graph.graph;
        return graph && resolve(graph, answer.types[which] ?? {}, answer.tensors);
    }, [answer, which]);
    const folded = useMemo(() => (model ? fold(model) : []), [model]);
    const [selected, setSelected] = useState<string>();
    const node = selected === undefined ? undefined : model?.byName.get(selected);
    if (!model) return null;
    return (
        <div className={styles.view}>
            <Summary model={model} folded={folded} />
            <div className={styles.columns}>
                <div className={styles.flow}>
                    <FoldedView folded={folded} model={model} selected={node} onSelect={setSelected} />
                </div>
                <div className={styles.side}>
                    <Finder model={model} onSelect={setSelected} />
                    {node ? (
                        <div className={styles.chosen}>
                            <NodeDetail
                                model={model}
                                node={node}
                                onSelect={setSelected}
                                onClose={() => setSelected(undefined)}
                            />
                        </div>
                    ) : (
                        <p className={styles.hint}>
                            Choose a node to see what it reads, its attributes and its weights.
                        </p>
                    )}
                </div>
            </div>
        </div>
    );
}

export interface FoldedProps {
    folded: readonly Folded[];
    model: Model;
    selected: Node | undefined;
    onSelect: (name: string) => void;
}

/** Sections one below the other; those that repeat stand there once. */
export function FoldedView({ folded, model, selected, onSelect }: FoldedProps) {
    return folded.map((part) =>
        "section" in part ? (
            <SectionView
                key={part.section.nodes[0]?.name}
                section={part.section}
                model={model}
                selected={selected}
                onSelect={onSelect}
            />
        ) : (
            <RepeatView
                key={part.repeat.all[0]?.[0]?.nodes[0]?.name}
                repeat={part.repeat}
                model={model}
                selected={selected}
                onSelect={onSelect}
            />
        ),
    );
}

function Summary({ model, folded }: { model: Model; folded: readonly Folded[] }) {
    const formats = useMemo(() => byFormat(model), [model]);
    const layers = new Set(model.nodes.flatMap(({ layer }) => layer ?? []));
    const total = [...model.weights.values()].reduce((sum, weight) => sum + parameters(weight), 0);
    return (
        <Card title={model.name} aside={outline(folded)}>
            <dl className={styles.summary}>
                <Figure name="Layers" value={formatCount(layers.size)} />
                <Figure name="Nodes" value={formatCount(model.nodes.length)} />
                <Figure name="Weights" value={formatCount(model.weights.size)} />
                <Figure name="Parameters" value={formatFigure(total)} />
                <Figure name="States" value={formatCount(model.states.size)} />
                {formats.map(([format, size]) => (
                    <Figure key={format} name={format} value={formatMemory(size)} />
                ))}
            </dl>
        </Card>
    );
}

function Figure({ name, value }: { name: string; value: string }) {
    return (
        <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
        </div>
    );
}

/** Bytes of the tensors of each format, most first; a tensor that several weights use counts once. */
function byFormat(model: Model): [string, number][] {
    const tensors = new Map([...model.weights.values()].flatMap(({ tensors }) => tensors.map((t) => [t.name, t])));
    const sizes = new Map<string, number>();
    for (const { type, bytes } of tensors.values()) sizes.set(type, (sizes.get(type) ?? 0) + bytes);
    return [...sizes].sort(([, a], [, b]) => b - a);
}

/** The repeating parts in one line: `1 + 12 × (3 + 1)`. */
function outline(folded: readonly Folded[]): string {
    const layers = folded.filter((part) => "repeat" in part || part.section.layer !== undefined);
    const told = layers.map((part) => {
        if ("section" in part) return "1";
        const inner = outline(part.repeat.body);
        return part.repeat.body.length === 1 ? String(part.repeat.times) : `${part.repeat.times} × (${inner})`;
    });
    return told.length > 0 ? `layers ${told.join(" + ")}` : "";
}

const ROW = 26;

/** Nodes by what is in their names. */
function Finder({ model, onSelect }: { model: Model; onSelect: (name: string) => void }) {
    const [text, setText] = useState("");
    const found = useMemo(() => {
        const words = text.toLowerCase().split(/\s+/).filter(Boolean);
        if (words.length === 0) return [];
        const told = (node: Node) =>
            [node.name, node.op, ...node.weights.map(({ name }) => name)].join(" ").toLowerCase();
        return model.nodes.filter((node) => words.every((word) => told(node).includes(word)));
    }, [model, text]);
    return (
        <div className={styles.finder}>
            <div className={styles.search}>
                <Search size={16} aria-hidden />
                <TextField
                    label="Find nodes"
                    labelHidden
                    type="search"
                    placeholder="Find by name, op or weight"
                    value={text}
                    onChange={(event) => setText(event.target.value)}
                    onKeyDown={(event) => {
                        if (event.key === "Enter" && found[0]) onSelect(found[0].name);
                    }}
                />
            </div>
            {text.trim() !== "" && (
                <>
                    <p className="muted">{plural(found.length, "node")}</p>
                    <VirtualList
                        label="Found nodes"
                        className={styles.found}
                        count={found.length}
                        rowHeight={ROW}
                        row={(i) => {
                            const node = found[i];
                            return (
                                node && (
                                    <button
                                        key={node.name}
                                        type="button"
                                        className={styles.hit}
                                        onClick={() => onSelect(node.name)}
                                    >
                                        <span>{node.name}</span> <small>{node.op}</small>
                                    </button>
                                )
                            );
                        }}
                    />
                </>
            )}
        </div>
    );
}
