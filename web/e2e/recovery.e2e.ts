import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { answers, launch, message, open, say } from "./support/browser";
import { type Script, startScripted } from "./support/server";

const LONG = Array.from({ length: 60 }, (_, line) => `Line ${line} of the poem.`).join("\n\n");

const script: Script = {
    answers: [
        { when: "", say: "<think>\n\n</think>\n\nA plain answer." },
        { when: "poem", say: LONG, ms: 5 },
        { when: "break down", say: "Half an ans", ms: 1, fails: true },
    ],
};

let browser: Browser;

beforeAll(async () => {
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
});

it("keeps what arrived when the server is killed in mid-stream, and goes on once it is back", async () => {
    const server = await startScripted(script);
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Write a poem");
    await answers(page, "streaming").getByText("Line 5 of the poem.").waitFor();
    await server.kill();
    const cut = answers(page, "interrupted");
    await cut.getByText("The connection ended before the answer did.").waitFor();
    await cut.getByText("Line 5 of the poem.").waitFor();
    await page.getByText(/The server is away/).waitFor();
    const again = await startScripted(script, ["--port", String(server.port)]);
    await page.getByText(/The server is away/).waitFor({ state: "detached" });
    await cut.getByRole("button", { name: "Continue" }).click();
    await answers(page).getByText("Line 59 of the poem.").waitFor();
    await answers(page).hover();
    await answers(page).getByRole("button", { name: "Copy the answer" }).click();
    await answers(page).getByRole("button", { name: "Copied" }).waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(LONG);
    expect(complaints).toEqual([]);
    await context.close();
    await again.kill();
});

it("keeps the history over a reload, also of an answer that is half there", async () => {
    const server = await startScripted(script);
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Hello");
    await answers(page).getByText("A plain answer.").waitFor();
    await say(page, "Write a poem");
    await answers(page, "streaming").getByText("Line 8 of the poem.").waitFor();
    await page.reload();
    await answers(page).getByText("A plain answer.").waitFor();
    const half = answers(page, "interrupted");
    await half.getByText("The page was closed before the answer ended.").waitFor();
    await half.getByText("Line 1 of the poem.").waitFor();
    await half.getByRole("button", { name: "Retry" }).first().click();
    await answers(page).getByText("Line 59 of the poem.").waitFor();
    expect(complaints).toEqual([]);
    await context.close();
    await server.kill();
});

it("shows where a request failed, and why, and keeps what was written", async () => {
    const server = await startScripted(script);
    const { page, context, complaints } = await open(browser, server.url);
    await say(page, "Please break down");
    const failed = answers(page, "failed");
    await failed.getByText("Half an ans").waitFor();
    await failed.getByRole("button", { name: "Retry" }).first().waitFor();
    await message(page).fill("Not sent yet");
    await page.reload();
    await answers(page, "failed").waitFor();
    expect(await message(page).inputValue()).toBe("Not sent yet");
    expect(complaints).toEqual([]);
    await context.close();
    await server.kill();
});

it("asks for the key when the server wants one", async () => {
    const server = await startScripted(script, ["--api-key", "secret"]);
    const { page, context, complaints } = await open(browser, server.url);
    const dialog = page.getByRole("dialog", { name: "API key" });
    // Typed where the dialog puts the person.
    await dialog.waitFor();
    await page.keyboard.type("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("The server did not take the last key.").waitFor();
    await dialog.getByLabel("This server wants a key").fill("secret");
    await dialog.getByRole("button", { name: "Use key" }).click();
    await say(page, "Hello");
    await answers(page).getByText("A plain answer.").waitFor();
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, document.cookie]));
    expect(kept).not.toContain("secret");
    await page.reload();
    await say(page, "Hello again");
    await answers(page).nth(1).waitFor();
    expect(complaints).toEqual([]);
    await context.close();
    await server.kill();
});
