import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { Block } from "./Block";

const html = (source: string) => renderToStaticMarkup(<Block source={source} />);

describe("Block", () => {
    it("renders what people expect of Markdown", () => {
        expect(html("a **b** *c* ~~d~~ `e`")).toBe(
            "<p>a <strong>b</strong> <em>c</em> <del>d</del> <code>e</code></p>",
        );
        expect(html("## T")).toBe('<h4 data-depth="2">T</h4>');
        expect(html("3. a\n4. b")).toBe('<ol start="3"><li>a</li><li>b</li></ol>');
        expect(html("| a | b |\n| - | -: |\n| 1 | 2 |")).toContain('<td data-align="right">2</td>');
        expect(html("- [x] done")).toContain('type="checkbox"');
        expect(html("a &amp; b &lt;c&gt; &#233;")).toBe("<p>a &amp; b &lt;c&gt; é</p>");
    });

    it("makes no HTML of what a model wrote", () => {
        for (const evil of [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)>",
            "<iframe src='//x'></iframe>",
            "[x](javascript:alert(1))",
            "[x](data:text/html,<b>)",
            "![x](http://tracker/p.gif)",
            '<a href="javascript:alert(1)">x</a>',
        ]) {
            const out = html(evil);
            expect(out).not.toMatch(/<(script|img|iframe)/);
            expect(out).not.toMatch(/href="(javascript|data):/);
        }
    });

    it("links to elsewhere without telling where from", () => {
        expect(html("[x](https://example.org)")).toContain('rel="noreferrer noopener"');
    });

    it("takes dollars for formulas only where they are", () => {
        const formulas = (source: string) => html(source).match(/<span/g)?.length ?? 0;
        expect(formulas("costs $5 and $6")).toBe(0);
        expect(formulas("so $a+b$ and \\(c\\)")).toBe(2);
        expect(formulas("$$\nx\n$$")).toBe(1);
        expect(formulas("`$a$`")).toBe(0);
    });

    it("shows code that has not ended as code", () => {
        expect(html("```py\nx = 1\n\ny")).toContain("x = 1\n\ny</code>");
        expect(html("```\na\n```")).toContain("<code>a</code>");
        expect(html("```\na\n``")).toContain("<code>a\n``</code>");
    });
});
