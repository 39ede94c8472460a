import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BlockSplitter, splitBlocks } from "./blocks";

const SAMPLE = `# Title
Text that goes
on.

- one

  \`\`\`js
  let a;

  let b;
  \`\`\`
- two

1. first

\`\`\`python
def f():

    return 1
\`\`\`
After.
\`\`\`\`
\`\`\`
\`\`\`\`

| a | b |
| - | - |
| 1 | 2 |

$$
x = 1

y = 2
$$

    indented

    more

* * *

> quoted

~~~
open`;

/** Texts of the pieces that matter to where blocks end. */
const marks = fc.constantFrom(
    "\n",
    "\n\n",
    "```",
    "````",
    "~~~",
    "$$",
    "\\[",
    "\\]",
    "- ",
    "1. ",
    "# ",
    "    ",
    "  ",
    "> ",
    "|",
    "***",
    "a",
    "word ",
    "\r\n",
);
const texts = fc.array(marks, { maxLength: 40 }).map((parts) => parts.join(""));

describe("splitBlocks", () => {
    it("cuts where blocks end, and nowhere within lists, fences and formulas", () => {
        expect(splitBlocks(SAMPLE)).toEqual([
            "# Title",
            "Text that goes\non.",
            "- one\n\n  ```js\n  let a;\n\n  let b;\n  ```\n- two\n\n1. first",
            "```python\ndef f():\n\n    return 1\n```",
            "After.",
            "````\n```\n````",
            "| a | b |\n| - | - |\n| 1 | 2 |",
            "$$\nx = 1\n\ny = 2\n$$",
            "    indented\n\n    more",
            "* * *",
            "> quoted",
            "~~~\nopen",
        ]);
    });

    it("loses no line that says something", () => {
        fc.assert(
            fc.property(texts, (text) => {
                const lines = (text: string) => text.split(/\r?\n/).filter((line) => line.trim() !== "");
                expect(splitBlocks(text).flatMap(lines)).toEqual(lines(text));
            }),
        );
    });
});

describe("BlockSplitter", () => {
    it("gives the same blocks whatever pieces a text comes in, and never takes an ended one back", () => {
        fc.assert(
            fc.property(fc.oneof(texts, fc.constant(SAMPLE)), fc.array(fc.nat({ max: 400 })), (text, cuts) => {
                const splitter = new BlockSplitter();
                let before: string[] = [];
                for (const end of [...cuts.filter((cut) => cut <= text.length).sort((a, b) => a - b), text.length]) {
                    splitter.advanceTo(text.slice(0, end));
                    const ended = [...splitter.finished()];
                    expect(ended.slice(0, before.length)).toEqual(before);
                    before = ended;
                    expect([...ended, ...splitter.growing()]).toEqual(splitBlocks(text.slice(0, end)));
                }
            }),
        );
    });

    it("starts anew with another text", () => {
        const splitter = new BlockSplitter();
        splitter.advanceTo("a\n\nb\n\n");
        splitter.advanceTo("other");
        expect([...splitter.finished(), ...splitter.growing()]).toEqual(["other"]);
    });
});
