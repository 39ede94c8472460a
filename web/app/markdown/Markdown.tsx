import { memo, useState } from "react";
import { Lazy } from "../ui/Lazy";
import { Block } from "./Block";
import { BlockSplitter } from "./blocks";
import styles from "./Markdown.module.css";

/** Blocks that are put on the page together. */
const GROUP = 24;
/** Blocks of a text up to which all are on the page, where the browser's search and the selection find them. */
const SHORT = 240;

interface MarkdownProps {
    text: string;
    /** Whether more may come. */
    growing?: boolean;
}

/** Markdown as it arrives: only the last block is parsed again, and what is far from the screen is not rendered. */
export const Markdown = memo(function Markdown({ text, growing = false }: MarkdownProps) {
    const [splitter] = useState(() => new BlockSplitter());
    splitter.advanceTo(text);
    const finished = splitter.finished();
    const whole = Math.floor(finished.length / GROUP) * GROUP;
    const groups = Array.from({ length: whole / GROUP }, (_, index) =>
        finished.slice(index * GROUP, index * GROUP + GROUP),
    );
    const rest = finished.slice(whole);
    const last = splitter.growing();
    return (
        <div className={styles.markdown}>
            {groups.map((blocks, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: blocks that have ended keep their places.
                <Group key={index} blocks={blocks} pinned={finished.length <= SHORT} />
            ))}
            {rest.map((block, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: as above.
                <Block key={whole + index} source={block} />
            ))}
            {last.map((block, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: as above.
                <Block key={finished.length + index} source={block} growing={growing && index === last.length - 1} />
            ))}
        </div>
    );
});

const Group = memo(
    function Group({ blocks, pinned }: { blocks: string[]; pinned: boolean }) {
        const characters = blocks.reduce((sum, block) => sum + block.length, 0);
        return (
            <Lazy estimate={Math.max(blocks.length * 40, characters / 3)} pinned={pinned}>
                {blocks.map((block, index) => (
                    // biome-ignore lint/suspicious/noArrayIndexKey: blocks that have ended keep their places.
                    <Block key={index} source={block} />
                ))}
            </Lazy>
        );
    },
    (before, after) =>
        before.pinned === after.pinned &&
        before.blocks.length === after.blocks.length &&
        before.blocks.every((block, at) => block === after.blocks[at]),
);
