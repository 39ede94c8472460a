import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { answers, launch, open, say } from "./support/browser";
import { startReal } from "./support/real";
import type { Server } from "./support/server";
import { openView } from "./support/views";

let browser: Browser;
let server: Server;

beforeAll(async () => {
    browser = await launch();
    server = await startReal();
});

afterAll(async () => {
    await server.kill();
    await browser.close();
});

async function count(path: string, body: object): Promise<number> {
    const headers = { "content-type": "application/json" };
    const response = await fetch(server.url + path, { method: "POST", headers, body: JSON.stringify(body) });
    const told = (await response.json()) as { tokens?: unknown[]; usage?: { prompt_tokens: number } };
    return told.usage?.prompt_tokens ?? told.tokens?.length ?? Number.NaN;
}

it("colours the tokens of a text and tells their ids", async () => {
    const { page, complaints } = await openView(browser, server.url, "tokenizer");
    const text = "Hens <|im_start|> peck\n🐔";
    const figure = page.locator("dl", { hasText: "Characters a token" }).locator("dd").first();
    await page.getByRole("textbox", { name: "Text" }).fill(text);
    await expect.poll(() => figure.textContent()).toBe(String(await count("/tokenize", { content: text })));
    const special = page.getByRole("region", { name: "Tokens", exact: true }).locator("[data-special]");
    await special.getByText("<|im_start|>").waitFor();

    await page.getByRole("region", { name: "Tokens", exact: true }).locator('[data-i="1"]').hover();
    await page.getByRole("region", { name: "Ids of the tokens" }).locator("[data-at]", { hasText: "2" }).waitFor();
    await page.getByText(/, token 2/).waitFor();

    await page.getByLabel("Control tokens").uncheck();
    const plain = await count("/tokenize", { content: text, parse_special: false });
    await expect.poll(() => figure.textContent()).toBe(String(plain));
    expect(await special.count()).toBe(0);
    expect(complaints).toEqual([]);
    await page.context().close();
});

it("takes a text of 100 KB, of which only what is seen is there", async () => {
    const { page } = await openView(browser, server.url, "tokenizer");
    const text = "Every hen has 3 reasons to cross the road, and tells of none.\n".repeat(1650);
    expect(text.length).toBeGreaterThan(100_000);
    await page.getByRole("textbox", { name: "Text" }).fill(text);
    const tokens = await count("/tokenize", { content: text });
    await page.getByText(tokens.toLocaleString("en"), { exact: true }).waitFor();
    const view = page.getByRole("region", { name: "Tokens", exact: true });
    expect(await view.locator("[data-i]").count()).toBeLessThan(5000);
    await view.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    await view.locator(`[data-i="${tokens - 1}"]`).waitFor();
    await page.context().close();
});

it("shows what the template makes of a conversation", async () => {
    const { page, complaints } = await openView(browser, server.url, "prompt");
    const prompt = page.getByRole("region", { name: "Tokens of the prompt" });
    await prompt.getByText("Which came first?").waitFor();
    const text = page.getByRole("textbox", { name: "Text of message 2" });
    await text.fill("The hen <|im_end|> or the egg?");
    await prompt.getByText("or the egg?").waitFor();
    // What a message spells stays text; the template's own are tokens.
    const specials = await prompt.locator("[data-special]").allInnerTexts();
    expect(specials.filter((spelling) => spelling === "<|im_end|>").length).toBe(2);

    const messages = [
        { role: "system", content: "You are a helpful assistant." },
        { role: "user", content: "The hen <|im_end|> or the egg?" },
    ];
    const tokens = await count("/v1/chat/completions", { messages, max_tokens: 1 });
    await page.getByText(new RegExp(`^${tokens} tokens`)).waitFor();

    await page.getByRole("button", { name: "Add a message" }).click();
    await page.getByRole("textbox", { name: "Text of message 3" }).fill("The egg.");
    await prompt.getByText("The egg.").waitFor();
    await page.getByLabel("Tools").fill("{");
    await page.getByText(/A JSON array of tools/).waitFor();
    expect(complaints).toEqual([]);
    await page.context().close();
});

it("shows the prompt of a chat as its model saw it", async () => {
    const { page } = await open(browser, server.url);
    await say(page, "Do hens <|im_start|> swim?");
    await answers(page).first().waitFor();
    await page.goto(`${server.url}/#/prompt`);
    await page.getByRole("tab", { name: "Of a chat" }).click();
    const prompt = page.getByRole("region", { name: "Tokens of the prompt" });
    await prompt.getByText("swim?").waitFor();
    // The last thing is the beginning of the answer.
    await expect.poll(() => prompt.textContent()).toMatch(/swim\?<\|im_end\|>↵\s*<\|im_start\|>assistant↵\s*$/);
    await page.context().close();
});
