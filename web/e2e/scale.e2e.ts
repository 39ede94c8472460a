import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, open } from "./support/browser";
import { type Server, startScripted } from "./support/server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
    server = await startScripted({ answers: [{ when: "", say: "Yes." }] });
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
    await server?.kill();
});

const MESSAGES = 2000;
const PARAGRAPHS = 3000;

/** Elements on the page beyond which it would not be usable. */
const MOST_ELEMENTS = 6000;

interface Said {
    id: string;
    role: string;
    text: string;
}

/** A conversation as an exported file has it. */
function conversation(id: string, title: string, said: readonly Said[]) {
    const messages = said.map(({ id: message, role, text }, index) => ({
        id: message,
        conversation: id,
        parent: said[index - 1]?.id ?? null,
        role,
        at: index,
        revision: 0,
        parts: [{ kind: "text", text }],
        ...(role === "assistant" && { answer: { state: "done", protocol: "chat", model: "m" } }),
    }));
    const settings = { protocol: "chat", knobs: {}, builtins: [], tools: [] };
    const leaf = messages.at(-1)?.id;
    return { conversation: { id, title, named: true, created: 1, updated: 1, leaf, settings }, messages };
}

const many = conversation(
    "many",
    "Many messages",
    Array.from({ length: MESSAGES }, (_, index) => ({
        id: `m${index}`,
        role: index % 2 === 0 ? "user" : "assistant",
        text:
            index % 2 === 0 ? `Question ${index}?` : `Answer ${index}.\n\n- **one**\n- two\n\n\`\`\`js\nlet x;\n\`\`\``,
    })),
);

/** Some hundred thousand tokens. */
const long = conversation("long", "A long answer", [
    { id: "q", role: "user", text: "Tell me everything." },
    {
        id: "a",
        role: "assistant",
        text: Array.from({ length: PARAGRAPHS }, (_, n) => `Paragraph ${n}: ${"words and more words ".repeat(7)}`).join(
            "\n\n",
        ),
    },
]);

const code = conversation("code", "Long code", [
    { id: "q", role: "user", text: "Write all of it." },
    {
        id: "a",
        role: "assistant",
        text: `\`\`\`text\n${Array.from({ length: 10_000 }, (_, n) => `line ${n} of a listing that is long`).join("\n")}\n\`\`\``,
    },
]);

const elements = (page: Page) => page.evaluate(() => document.querySelectorAll("*").length);

it("shows conversations of thousands of messages and answers of a hundred thousand tokens", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    const archive = { format: "bantam-conversations", version: 1, conversations: [many, long, code] };
    await page.getByLabel("File to import").setInputFiles({
        name: "export.json",
        mimeType: "application/json",
        buffer: Buffer.from(JSON.stringify(archive)),
    });
    await page.getByText("Imported 3 conversations.").waitFor();

    await page.getByRole("link", { name: "Many messages" }).click();
    await page.getByText(`Answer ${MESSAGES - 1}.`).waitFor();
    expect(await elements(page)).toBeLessThan(MOST_ELEMENTS);
    const list = page.getByRole("region", { name: "Conversation" });
    await list.focus();
    await list.press("Home");
    await page.getByText("Question 0?", { exact: true }).waitFor();
    expect(await elements(page)).toBeLessThan(MOST_ELEMENTS);
    await page.getByRole("button", { name: "To the newest" }).click();
    await page.getByText(`Answer ${MESSAGES - 1}.`).waitFor();

    await page.getByRole("link", { name: "A long answer" }).click();
    await page.getByText(`Paragraph ${PARAGRAPHS - 1}:`).waitFor();
    expect(await elements(page)).toBeLessThan(MOST_ELEMENTS);

    await page.getByRole("link", { name: "Long code" }).click();
    await page.getByRole("region", { name: "Code, text" }).waitFor();
    expect(await elements(page)).toBeLessThan(MOST_ELEMENTS);
    expect(complaints).toEqual([]);
    await context.close();
});
