import { memo, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { classes } from "../../ui/classes";
import type { Section } from "./fold";
import styles from "./Graph.module.css";
import { curve, type Item, type Layout, layout } from "./layout";
import { type Model, type Node, shapeText } from "./model";

interface SectionViewProps {
    section: Section;
    model: Model;
    selected: Node | undefined;
    onSelect: (name: string) => void;
}

const WIDTH = 142;
const HEIGHT = 58;
const PILL = { width: 120, height: 24 };
const MARGIN = 8;
/** What stands before the name of a value that comes from another section. */
const OUTSIDE = "outside:";

/** The nodes of a layer, each below what it reads. It is laid out once it comes near the view. */
export function SectionView(props: SectionViewProps) {
    const { section } = props;
    const box = useRef<HTMLElement>(null);
    const [near, setNear] = useState(false);
    useEffect(() => {
        const element = box.current;
        if (!element) return;
        const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && setNear(true), {
            rootMargin: "1000px",
        });
        observer.observe(element);
        return () => observer.disconnect();
    }, []);
    const title =
        section.layer === undefined ? section.nodes.map(({ name }) => name).join(", ") : `Layer ${section.layer}`;
    return (
        <section ref={box} className={styles.section} aria-label={title}>
            {section.layer !== undefined && <h3>{title}</h3>}
            {near ? <Drawing {...props} /> : <div style={{ height: section.nodes.length * 40 }} />}
        </section>
    );
}

function Drawing({ section, model, selected, onSelect }: SectionViewProps) {
    const plan = useMemo(() => layout(itemsOf(section, model)), [section, model]);
    const at = selected && section.nodes.includes(selected) ? selected.name : undefined;
    const box = useRef<HTMLElement>(null);
    useEffect(() => {
        if (at === undefined) return;
        const element = box.current?.querySelector(`[data-node="${CSS.escape(at)}"]`);
        element?.scrollIntoView({ block: "nearest", inline: "nearest" });
    }, [at]);
    useLayoutEffect(() => {
        const element = box.current;
        if (element) element.scrollLeft = (element.scrollWidth - element.clientWidth) / 2;
    }, []);
    const nodes = new Map(section.nodes.map((node) => [node.name, node]));
    return (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
        <section ref={box} className={styles.canvas} tabIndex={0} aria-label="Nodes">
            <div className={styles.sheet} style={{ width: plan.width + 2 * MARGIN, height: plan.height + 2 * MARGIN }}>
                <Edges plan={plan} at={at} />
                {plan.items.map(({ id, x, y, width, height }) => {
                    const node = nodes.get(id);
                    const style = { left: x + MARGIN, top: y + MARGIN, width, height };
                    if (!node) {
                        const name = id.slice(OUTSIDE.length);
                        const from = model.producer.get(name);
                        return (
                            <button
                                key={id}
                                type="button"
                                className={styles.pill}
                                style={style}
                                title={`from ${name}`}
                                onClick={() => from && onSelect(from.name)}
                            >
                                {name}
                            </button>
                        );
                    }
                    return (
                        <button
                            key={id}
                            type="button"
                            data-node={id}
                            className={classes(styles.node, tone(node))}
                            style={style}
                            aria-pressed={id === at}
                            onClick={() => onSelect(id)}
                        >
                            <NodeText node={node} model={model} />
                        </button>
                    );
                })}
            </div>
        </section>
    );
}

const NodeText = memo(function NodeText({ node, model }: { node: Node; model: Model }) {
    const type = node.results[0]?.type;
    const weight = node.weights.map(({ name }) => model.weights.get(name)).find(Boolean);
    const format = weight?.tensors[0]?.type;
    return (
        <>
            <span className={styles.base}>{node.base}</span>
            <span className={styles.op}>
                {node.op.replaceAll("_", " ")}
                {format && <b>{format}</b>}
            </span>
            <span className={styles.shape}>{type ? shapeText(type) : "stores"}</span>
        </>
    );
});

function Edges({ plan, at }: { plan: Layout; at: string | undefined }) {
    return (
        <svg className={styles.edges} width={plan.width + 2 * MARGIN} height={plan.height + 2 * MARGIN} aria-hidden>
            <g transform={`translate(${MARGIN} ${MARGIN})`}>
                {plan.edges.map(({ from, to, points }) => (
                    <path
                        key={`${from} ${to}`}
                        d={curve(points)}
                        data-at={
                            at !== undefined && (from === at || to === at) ? (to === at ? "in" : "out") : undefined
                        }
                    />
                ))}
            </g>
        </svg>
    );
}

/** The nodes, and a pill for each value that comes from another section. */
function itemsOf(section: Section, model: Model): Item[] {
    const inside = new Set(section.nodes.map(({ name }) => name));
    const outside = new Map<string, Item>();
    const nodes = section.nodes.map((node): Item => {
        const reads = node.inputs.flatMap(({ name }) => {
            const from = model.producer.get(name);
            if (from && inside.has(from.name)) return from.name;
            // Every layer reads the positions; a line to each would hide the others.
            if (from?.op === "input") return [];
            const id = OUTSIDE + name;
            outside.set(id, { id, reads: [], ...PILL });
            return id;
        });
        return { id: node.name, reads, width: WIDTH, height: HEIGHT };
    });
    return [...outside.values(), ...nodes];
}

/** What kind of work a node is, for its colour. */
function tone({ op, weights }: Node): string | undefined {
    if (/attention|delta_rule|ssm|conv|store/.test(op)) return styles.mixes;
    if (/experts|route/.test(op)) return styles.routes;
    if (weights.length > 0 && op !== "norm") return styles.weighs;
    return undefined;
}
