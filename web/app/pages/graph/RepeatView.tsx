import { useId, useMemo, useState } from "react";
import { type Folded, foldAll, type Repeat, signature } from "./fold";
import styles from "./Graph.module.css";
import { FoldedView } from "./GraphPage";
import type { Model, Node } from "./model";

interface RepeatViewProps {
    repeat: Repeat;
    model: Model;
    selected: Node | undefined;
    onSelect: (name: string) => void;
}

/** Layers of the same shape, of which one at a time is shown. */
export function RepeatView({ repeat, model, selected, onSelect }: RepeatViewProps) {
    const id = useId();
    const [chosen, setChosen] = useState(0);
    const place = useMemo(() => {
        const layers = repeat.all.map((sections) => sections.map(({ layer }) => layer));
        return (layer: number | undefined) => layers.findIndex((all) => layer !== undefined && all.includes(layer));
    }, [repeat]);
    // Whoever chooses a node of another time is shown that one.
    const wanted = place(selected?.layer);
    const [followed, setFollowed] = useState<Node>();
    if (selected !== followed) {
        setFollowed(selected);
        if (wanted >= 0) setChosen(wanted);
    }
    const body = useMemo((): readonly Folded[] => {
        const sections = repeat.all[chosen] ?? [];
        if (sections.length === 1) return sections.map((section) => ({ section }));
        return foldAll(
            sections,
            sections.map((section) => signature(section, model)),
        );
    }, [repeat, chosen, model]);
    const name = (i: number) => {
        const layers = repeat.all[i]?.map(({ layer }) => layer) ?? [];
        return layers.length > 1 ? `${layers[0]} to ${layers.at(-1)}` : String(layers[0]);
    };
    const noun = (repeat.all[0]?.length ?? 1) > 1 ? "layers" : "layer";
    return (
        <section className={styles.repeat} aria-label={`${noun} ${name(0)}, ${repeat.times} times`}>
            <header className={styles.repeatHead}>
                <span className={styles.times}>×{repeat.times}</span>
                <label htmlFor={id}>{noun}</label>
                <select id={id} value={chosen} onChange={(event) => setChosen(Number(event.target.value))}>
                    {repeat.all.map((sections, i) => (
                        <option key={sections[0]?.layer} value={i}>
                            {name(i)}
                        </option>
                    ))}
                </select>
            </header>
            <FoldedView folded={body} model={model} selected={selected} onSelect={onSelect} />
        </section>
    );
}
