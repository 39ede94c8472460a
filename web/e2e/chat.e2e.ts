import { readFile } from "node:fs/promises";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { answers, closeDialog, launch, message, open, say, settings, watchLosses } from "./support/browser";
import { type Server, startScripted } from "./support/server";

const LONG = Array.from({ length: 60 }, (_, line) => `Line ${line} of the poem.`).join("\n\n");

let server: Server;
let browser: Browser;

beforeAll(async () => {
    server = await startScripted({
        prompt_ms: 0.2,
        answers: [
            { when: "", say: "<think>\nHm.\n</think>\n\nA plain answer.", ms: 20 },
            { when: "poem", say: LONG, ms: 4 },
            {
                when: "markdown",
                say: "# Title\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n```js\nconst x = 1;\n```\n\nSo $a^2$.\n\n- one\n- two",
            },
            { when: "ponder", say: `<think>\n${"Let me see. ".repeat(400)}\n</think>\n\nForty-two.`, ms: 3 },
            { when: "hen", say: "<think>\n\n</think>\n\nOf hens." },
            { when: "rooster", say: "<think>\n\n</think>\n\nOf roosters." },
            { when: "reply in json", say: '<think>\n\n</think>\n\n{"name": "Ada", "age": 36}' },
        ],
    });
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
    await server?.kill();
});

it("sends, streams and tells how fast", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Hello");
    const answer = answers(page);
    await answer.getByText("A plain answer.").waitFor();
    await answer.getByText(/tok\/s/).waitFor();
    await answer.getByText(/to first/).waitFor();
    await answer.getByText(/% cached/).waitFor();
    // What was sent with the mouse is followed by what is typed.
    await say(page, "Hello again");
    await answers(page).nth(1).getByText("A plain answer.").waitFor();
    expect(await message(page).evaluate((field) => field === document.activeElement)).toBe(true);
    await answer
        .first()
        .getByRole("button", { name: /^Thought/ })
        .click();
    await answer.first().getByText("Hm.").waitFor();
    expect(await page.title()).toBe("Hello – Bantam");
    expect(complaints).toEqual([]);
    await context.close();
});

it("renders Markdown with code, tables and formulas", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Write markdown");
    const answer = answers(page);
    await answer.getByRole("heading", { name: "Title" }).waitFor();
    await answer.getByRole("cell", { name: "2" }).waitFor();
    await answer.locator("pre span", { hasText: "const" }).waitFor();
    await answer.locator("math msup").waitFor();
    await answer.getByRole("button", { name: "Copy code" }).click();
    await answer.getByRole("button", { name: "Copied" }).waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("const x = 1;");
    expect(complaints).toEqual([]);
    await context.close();
});

it("stops an answer, and goes on with it where it stopped", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Write a poem");
    await answers(page, "streaming").getByText("Line 2 of the poem.").waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    const stopped = answers(page, "stopped");
    await stopped.waitFor();
    const before = await stopped.textContent();
    expect(before).not.toContain("Line 59");
    const losses = await watchLosses(page);
    await stopped.getByRole("button", { name: "Continue" }).click();
    const whole = answers(page);
    await whole.getByText("Line 59 of the poem.").waitFor();
    // Nothing of it was gone for a moment, which would move what is read out of sight.
    expect(await losses()).toBe(0);
    const below = await page.getByRole("region", { name: "Conversation" }).evaluate((box) => {
        return box.scrollHeight - box.scrollTop - box.clientHeight;
    });
    expect(below).toBeLessThan(48);
    await whole.hover();
    await whole.getByRole("button", { name: "Copy the answer" }).click();
    await whole.getByRole("button", { name: "Copied" }).waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(LONG);
    expect(complaints).toEqual([]);
    await context.close();
});

it("branches where a message is edited and an answer retried", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Tell of a hen");
    await answers(page).getByText("Of hens.").waitFor();
    await page.getByRole("article", { name: "You" }).hover();
    await page.getByRole("button", { name: "Edit the message" }).click();
    await page.getByRole("textbox", { name: "Edit the message" }).fill("Tell of a rooster");
    await page.getByRole("button", { name: "Send as a branch" }).click();
    await answers(page).getByText("Of roosters.").waitFor();
    await page.getByText("2/2").waitFor();
    await page.getByRole("button", { name: "Previous branch" }).click();
    await answers(page).getByText("Of hens.").waitFor();
    expect(await page.getByText("Of roosters.").count()).toBe(0);
    await answers(page).hover();
    await answers(page).getByRole("button", { name: "Retry" }).click();
    await answers(page).getByText("2/2").waitFor();
    expect(complaints).toEqual([]);
    await context.close();
});

it("answers now when it is asked to stop thinking, over each protocol", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    for (const [index, protocol] of ["chat", "responses", "messages"].entries()) {
        await settings(page, "General");
        await page.getByLabel("Protocol").selectOption(protocol);
        await closeDialog(page);
        const asked = page.waitForRequest(new RegExp(`/v1/${protocol === "chat" ? "chat/completions" : protocol}$`));
        await say(page, "Please ponder");
        await asked;
        await page.getByRole("button", { name: "Answer now" }).click();
        await answers(page).nth(index).getByText("Forty-two.").waitFor();
        const thought = await answers(page)
            .nth(index)
            .getByRole("button", { name: /^Thought/ })
            .textContent();
        // All of it would be thousands.
        expect(Number(/([\d,]+) token/.exec(thought ?? "")?.[1]?.replace(",", ""))).toBeLessThan(3000);
    }
    expect(complaints).toEqual([]);
    await context.close();
});

it("holds an answer to a schema and tells whether it keeps to it", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    const schema = {
        type: "object",
        properties: { name: { type: "string" }, age: { type: "integer" } },
        required: ["name", "age"],
    };
    await settings(page, "Form");
    await page.getByLabel("JSON schema of answers").fill("{");
    await page.getByText("This is not JSON").waitFor();
    await page.getByLabel("JSON schema of answers").fill(JSON.stringify(schema));
    await closeDialog(page);
    const request = page.waitForRequest("**/v1/chat/completions");
    await say(page, "Please reply in json");
    expect((await request).postDataJSON().response_format.json_schema.schema).toEqual(schema);
    await answers(page).getByText("Keeps to the schema").waitFor();
    expect(complaints).toEqual([]);
    await context.close();
});

it("sends the settings, shows the server's and keeps them with the conversation", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await settings(page, "Sampling");
    const temperature = page.getByLabel("Temperature", { exact: true });
    await page
        .getByPlaceholder(/\(built-in\)/)
        .first()
        .waitFor();
    await temperature.fill("abc");
    await page.getByText("This must be a number.").waitFor();
    await temperature.fill("0.25");
    await page.getByRole("tab", { name: "General" }).click();
    await page.getByLabel("System prompt").fill("Be kind.");
    await page.getByLabel("Name to keep this prompt under").fill("Kind");
    await page.getByRole("button", { name: "Keep", exact: true }).click();
    await page.getByRole("button", { name: "Kind", exact: true }).waitFor();
    await closeDialog(page);
    const request = page.waitForRequest("**/v1/chat/completions");
    await say(page, "Hello");
    const body = (await request).postDataJSON();
    expect(body.temperature).toBe(0.25);
    expect(body.messages[0]).toEqual({ role: "system", content: "Be kind." });
    await answers(page).waitFor();
    await page.reload();
    await settings(page, "Sampling");
    expect(await temperature.inputValue()).toBe("0.25");
    await page.getByRole("tab", { name: "General" }).click();
    const system = page.getByLabel("System prompt");
    await system.press("ControlOrMeta+End");
    await page.keyboard.type(" And be brief, please.");
    expect(await system.inputValue()).toBe("Be kind. And be brief, please.");
    expect(complaints).toEqual([]);
    await context.close();
});

it("finds, renames, deletes, brings back, exports and imports conversations", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    for (const text of ["Tell of a hen", "Tell of a rooster"]) {
        await page.getByRole("button", { name: "New chat" }).click();
        await say(page, text);
        await answers(page).waitFor();
    }
    const list = page.getByRole("navigation", { name: "Conversations" });
    await page.getByLabel("Search conversations").fill("hens");
    await list.getByRole("link").filter({ hasText: "rooster" }).waitFor({ state: "detached" });
    await list.getByRole("link", { name: "Tell of a hen" }).hover();
    await list.getByRole("button", { name: "More about Tell of a hen" }).click();
    await page.getByRole("menuitem", { name: "Rename" }).click();
    await list.getByLabel("Title").fill("Poultry");
    await page.keyboard.press("Enter");
    await list.getByRole("link", { name: "Poultry" }).waitFor();
    await page.getByLabel("Search conversations").fill("");
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Export all" }).click();
    const file = await (await download).path();
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Delete all" }).click();
    await list.getByText("No conversations yet.").waitFor();
    await page.getByRole("button", { name: "Undo" }).click();
    await list.getByRole("link", { name: "Poultry" }).waitFor();
    await page.getByLabel("File to import").setInputFiles({
        name: "export.json",
        mimeType: "application/json",
        buffer: await readFile(file),
    });
    await page.getByText("Imported 2 conversations.").waitFor();
    await expect.poll(() => list.getByRole("link", { name: "Poultry" }).count()).toBe(2);
    const written = page.waitForEvent("download");
    await list.getByRole("link", { name: "Poultry" }).first().hover();
    await list.getByRole("button", { name: "More about Poultry" }).first().click();
    await page.getByRole("menuitem", { name: "Export as Markdown" }).click();
    await page.getByLabel("File to import").setInputFiles({
        name: "Poultry.md",
        mimeType: "text/markdown",
        buffer: await readFile(await (await written).path()),
    });
    await page.getByText("Imported 1 conversation.").waitFor();
    await expect.poll(() => list.getByRole("link", { name: "Poultry" }).count()).toBe(3);
    await list.getByRole("link", { name: "Poultry" }).first().click();
    await answers(page).getByText("Of hens.").waitFor();
    expect(complaints).toEqual([]);
    await context.close();
});

it("is used by the keyboard alone", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await message(page).press("Escape");
    await page.locator("body").press("Alt+KeyN");
    await page.keyboard.type("Tell of a hen");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("please");
    await page.keyboard.press("Enter");
    await answers(page).getByText("Of hens.").waitFor();
    await message(page).press("ArrowUp");
    const edited = page.getByRole("textbox", { name: "Edit the message" });
    expect(await edited.inputValue()).toBe("Tell of a hen\nplease");
    await edited.press("Escape");
    await page.getByRole("region", { name: "Conversation" }).focus();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Alt+KeyS");
    await page.getByRole("dialog", { name: "Settings of this chat" }).waitFor();
    expect(complaints).toEqual([]);
    await context.close();
});

it("shows what is written in one tab in the other", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Write a poem");
    await answers(page, "streaming").getByText("Line 1 of the poem.").waitFor();
    const other = await context.newPage();
    await other.goto(page.url());
    await other.getByText("Being received in another tab…").waitFor();
    await other.getByText("Line 1 of the poem.").waitFor();
    const losses = await watchLosses(other);
    await answers(page).waitFor();
    await answers(other).getByText("Line 59 of the poem.").waitFor();
    expect(await losses()).toBe(0);
    expect(complaints).toEqual([]);
    await context.close();
});
