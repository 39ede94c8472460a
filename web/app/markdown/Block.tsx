import type { Token, Tokens } from "marked";
import { Fragment, memo, type ReactNode } from "react";
import { Code } from "./Code";
import { Formula } from "./Formula";
import { type BlockToken, parseBlock, safeHref, unescapeEntities } from "./parse";

interface BlockProps {
    source: string;
    growing?: boolean;
}

/** One block as elements. Nothing that a model wrote becomes HTML: what looks like it is shown as text. */
export const Block = memo(function Block({ source, growing = false }: BlockProps) {
    const fence = fenced(source);
    if (fence) return <Code language={fence.language} text={fence.text} growing={growing} />;
    return <>{many(parseBlock(source))}</>;
});

/** The code of a block that is nothing but code. Its end may yet have to come. */
function fenced(source: string): { language: string; text: string } | undefined {
    const opening = /^ {0,3}(`{3,}|~{3,})([^\n]*)(?:\n|$)/.exec(source);
    if (!opening) return undefined;
    const [line, marks = "", info = ""] = opening;
    if (marks.startsWith("`") && info.includes("`")) return undefined;
    const text = source.slice(line.length).replace(new RegExp(`(?:^|\\n) *${marks[0]}{${marks.length},} *$`), "");
    return { language: info.trim().split(/\s/)[0] ?? "", text };
}

function many(tokens: readonly BlockToken[] | undefined): ReactNode {
    // biome-ignore lint/suspicious/noArrayIndexKey: a block is rendered anew as a whole when it changes.
    return tokens?.map((token, index) => <Fragment key={index}>{one(token)}</Fragment>);
}

function one(token: BlockToken): ReactNode {
    const inside = () => many((token as Tokens.Generic).tokens as Token[] | undefined);
    switch (token.type) {
        case "space":
        case "def":
            return null;
        case "heading":
            return heading(token as Tokens.Heading, inside());
        case "paragraph":
            return <p>{inside()}</p>;
        case "text": {
            const { tokens, text } = token as Tokens.Text;
            return tokens ? many(tokens) : unescapeEntities(text);
        }
        case "escape":
            return (token as Tokens.Escape).text;
        case "strong":
            return <strong>{inside()}</strong>;
        case "em":
            return <em>{inside()}</em>;
        case "del":
            return <del>{inside()}</del>;
        case "br":
            return <br />;
        case "hr":
            return <hr />;
        case "codespan":
            return <code>{(token as Tokens.Codespan).text}</code>;
        case "code":
            return <Code language={(token as Tokens.Code).lang ?? ""} text={(token as Tokens.Code).text} />;
        case "math":
            return <Formula text={token.text} display={token.display} />;
        case "blockquote":
            return <blockquote>{inside()}</blockquote>;
        case "list":
            return list(token as Tokens.List);
        case "table":
            return table(token as Tokens.Table);
        case "link":
            return link(token as Tokens.Link, inside());
        case "image":
            return image(token as Tokens.Image);
        case "html":
            return /^<br\s*\/?>$/i.test(token.raw.trim()) ? <br /> : token.raw;
        default:
            return token.raw;
    }
}

/** The page has headings of its own above those of answers. */
function heading({ depth }: Tokens.Heading, inside: ReactNode): ReactNode {
    const Tag = `h${Math.min(depth + 2, 6)}` as "h3";
    return <Tag data-depth={depth}>{inside}</Tag>;
}

function list(token: Tokens.List): ReactNode {
    const items = token.items.map((item, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a block is rendered anew as a whole when it changes.
        <li key={index} data-task={item.task || undefined}>
            {item.task && <input type="checkbox" checked={item.checked ?? false} readOnly disabled aria-label="Done" />}
            {many(item.tokens.filter((token) => token.type !== "checkbox"))}
        </li>
    ));
    return token.ordered ? <ol start={Number(token.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function table(token: Tokens.Table): ReactNode {
    return (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a table wider than the page is scrolled by the keyboard too.
        <section className="table" tabIndex={0} aria-label="Table">
            <table>
                <thead>
                    <tr>
                        {token.header.map((cell, index) => (
                            // biome-ignore lint/suspicious/noArrayIndexKey: columns keep their places.
                            <th key={index} scope="col" data-align={token.align[index] ?? undefined}>
                                {many(cell.tokens)}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {token.rows.map((row, index) => (
                        // biome-ignore lint/suspicious/noArrayIndexKey: rows keep their places.
                        <tr key={index}>
                            {row.map((cell, column) => (
                                // biome-ignore lint/suspicious/noArrayIndexKey: columns keep their places.
                                <td key={column} data-align={token.align[column] ?? undefined}>
                                    {many(cell.tokens)}
                                </td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </section>
    );
}

function link(token: Tokens.Link, inside: ReactNode): ReactNode {
    const to = safeHref(unescapeEntities(token.href));
    if (!to) return <>{inside}</>;
    return (
        <a href={to} target="_blank" rel="noreferrer noopener" title={token.title ?? undefined}>
            {inside}
        </a>
    );
}

/** Images from elsewhere are not fetched: whoever is asked for one learns that the answer was read. */
function image(token: Tokens.Image): ReactNode {
    if (/^data:image\/(?:png|jpeg|gif|webp);base64,/i.test(token.href))
        return <img src={token.href} alt={token.text} />;
    const to = safeHref(token.href);
    const name = token.text || token.href;
    return to ? (
        <a href={to} target="_blank" rel="noreferrer noopener">
            {`Image: ${name}`}
        </a>
    ) : (
        name
    );
}
