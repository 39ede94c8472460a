import { X } from "lucide-react";
import { IconButton } from "../../ui/Button";
import { Card } from "../../ui/Card";
import { formatCount, formatMemory } from "../../ui/format";
import styles from "./Graph.module.css";
import { type Model, type Node, type Reference, shapeText } from "./model";

interface NodeDetailProps {
    model: Model;
    node: Node;
    onSelect: (name: string) => void;
    onClose: () => void;
}

/** One node with all that is known of it. */
export function NodeDetail({ model, node, onSelect, onClose }: NodeDetailProps) {
    const readers = model.readers.get(node.name) ?? [];
    return (
        <Card
            title={node.name}
            aside={
                <>
                    <code>{node.op}</code>
                    <IconButton label="Close" icon={X} small onClick={onClose} />
                </>
            }
        >
            <div className={styles.detail} data-part="detail">
                <Part title="Yields">
                    {node.results.length === 0 && <p className="muted">Nothing: it writes state.</p>}
                    {node.results.map(({ name, type }) => (
                        <Row key={name} name={node.results.length > 1 ? name : "value"} value={shapeText(type)} />
                    ))}
                </Part>
                <Part title="Reads">
                    {node.inputs.length === 0 && <p className="muted">No other node.</p>}
                    {node.inputs.map((input) => (
                        <Link
                            key={input.place}
                            {...input}
                            to={model.producer.get(input.name)?.name}
                            onSelect={onSelect}
                        />
                    ))}
                </Part>
                {node.weights.length > 0 && (
                    <Part title="Weights">
                        {node.weights.map((weight) => (
                            <WeightRow key={weight.place} {...weight} model={model} />
                        ))}
                    </Part>
                )}
                {node.states.length > 0 && (
                    <Part title="State">
                        {node.states.map(({ place, name }) => (
                            <Row key={place} name={place} value={`${name} ${stateText(model.states.get(name))}`} />
                        ))}
                    </Part>
                )}
                {node.attributes.length > 0 && (
                    <Part title="Attributes">
                        {node.attributes.map(({ place, value }) => (
                            <Row key={place} name={place} value={value} />
                        ))}
                    </Part>
                )}
                <Part title="Read by">
                    {readers.length === 0 && <p className="muted">No other node.</p>}
                    {readers.map(({ name, op }) => (
                        <Link key={name} place={op} name={name} to={name} onSelect={onSelect} />
                    ))}
                </Part>
            </div>
        </Card>
    );
}

function Part({ title, children }: { title: string; children: React.ReactNode }) {
    return (
        <section>
            <h3>{title}</h3>
            {children}
        </section>
    );
}

function Row({ name, value }: { name: string; value: string }) {
    return (
        <p className={styles.row}>
            <span>{name}</span>
            <code>{value}</code>
        </p>
    );
}

function Link({ place, name, to, onSelect }: Reference & { to: string | undefined; onSelect: (name: string) => void }) {
    return (
        <p className={styles.row}>
            <span>{place}</span>
            <button
                type="button"
                className={styles.link}
                disabled={to === undefined}
                onClick={() => to && onSelect(to)}
            >
                {name}
            </button>
        </p>
    );
}

function WeightRow({ place, name, model }: Reference & { model: Model }) {
    const weight = model.weights.get(name);
    const made = weight?.tensors ?? [];
    const formats = [...new Set(made.map(({ type }) => type))].join(", ");
    const size = made.reduce((sum, tensor) => sum + tensor.bytes, 0);
    return (
        <div className={styles.weight}>
            <Row name={place} value={name} />
            <p className="muted">
                {weight?.shape.map(formatCount).join(" × ")} · {formats} · {formatMemory(size)}
                {made.length > 1 && ` in ${made.length} tensors`}
            </p>
        </div>
    );
}

function stateText(state: Record<string, unknown> | undefined): string {
    const told = Object.entries(state ?? {}).filter(([key]) => key !== "name");
    return told.map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
}
