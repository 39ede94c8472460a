import { execFileSync } from "node:child_process";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, open } from "./support/browser";
import { type Server, startScripted } from "./support/server";
import { openView } from "./support/views";

const KEY = "the key of hens";
const SAYS = 'It\'s "fine", $HOME `said` the hen\\n.';

let browser: Browser;
let server: Server;
let locked: Server;

beforeAll(async () => {
    browser = await launch();
    const script = {
        answers: [
            { when: "Once", say: SAYS },
            { when: "", say: "<think>\nHm.\n</think>\n\nCluck." },
        ],
    };
    server = await startScripted(script);
    locked = await startScripted(script, ["--api-key", KEY]);
});

afterAll(async () => {
    await Promise.all([server.kill(), locked.kill()]);
    await browser.close();
});

/** The text of a streamed completion. */
function told(events: string): string {
    const lines = events.split("\n").filter((line) => line.startsWith("data: {"));
    const chunks = lines.map((line) => JSON.parse(line.slice(6)) as { choices?: { text?: string }[] });
    return chunks.map((chunk) => chunk.choices?.[0]?.text ?? "").join("");
}

async function complete(page: Page): Promise<void> {
    await page.getByRole("textbox", { name: "Prompt" }).fill('It\'s "quoted" $PATH `x` \\ Once');
    await page.getByRole("button", { name: "Generate", exact: true }).click();
    await page.getByText(/ended by itself/).waitFor();
}

async function command(page: Page): Promise<string> {
    await page.getByRole("link", { name: /Requests/ }).click();
    await page
        .getByRole("link", { name: /\/v1\/completions/ })
        .first()
        .click();
    await page.getByRole("tab", { name: "curl" }).click();
    return (await page.locator('pre[data-part="command"]').textContent()) ?? "";
}

it("has a curl that really reproduces the request", async () => {
    const { page, complaints } = await openView(browser, server.url, "completions");
    await complete(page);
    const curl = await command(page);
    // It was read to its end.
    expect(await page.getByText(/ended by the page/i).count()).toBe(0);
    expect(told(execFileSync("sh", ["-c", curl], { encoding: "utf8" }))).toBe(SAYS);
    expect(complaints).toEqual([]);
    await page.context().close();
});

it("tells the frames with their times, and finds them", async () => {
    const { page } = await openView(browser, server.url, "completions");
    await complete(page);
    await command(page);
    await page.getByRole("tab", { name: /Events/ }).click();
    const frames = page.getByRole("region", { name: "Events" }).getByRole("button");
    await expect.poll(() => frames.count()).toBeGreaterThan(5);
    await frames.nth(2).click();
    expect(await page.locator('pre[data-part="event"]').textContent()).toContain('"text_completion"');
    await page.getByRole("tab", { name: "Body" }).click();
    expect(await page.locator('pre[data-part="body"]').textContent()).toContain('"stream": true');
    await page.getByRole("searchbox", { name: "Filter" }).fill("nothing like that");
    await page.getByText("No request has all of these words.").waitFor();
    await page.context().close();
});

it("never shows the key, and asks the shell for it", async () => {
    const { page } = await open(browser, locked.url);
    await page.getByLabel("This server wants a key").fill(KEY);
    await page.getByRole("button", { name: "Use key" }).click();
    await page.getByText("is ready").waitFor({ state: "attached" });
    await page.goto(`${locked.url}/#/completions`);
    await complete(page);
    const curl = await command(page);
    expect(curl).toContain("$BANTAM_API_KEY");
    expect(await page.content()).not.toContain(KEY);
    const env = { ...process.env, BANTAM_API_KEY: KEY };
    expect(told(execFileSync("sh", ["-c", curl], { encoding: "utf8", env }))).toBe(SAYS);
    const without = execFileSync("sh", ["-c", curl], { encoding: "utf8", env: { ...env, BANTAM_API_KEY: "no" } });
    expect(without).toContain("invalid_api_key");
    await page.context().close();
});
