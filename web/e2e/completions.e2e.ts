import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch } from "./support/browser";
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

it("tells how likely each token was and what else might have come, and goes on with that", async () => {
    const { page, complaints } = await openView(browser, server.url, "completions", { height: 640 });
    await page.getByLabel("Temperature").fill("0");
    await page.getByLabel("Max tokens").fill("12");
    await page.getByLabel("Alternatives").first().fill("5");
    await page.getByRole("textbox", { name: "Prompt" }).fill("A hen is");
    await page.getByRole("button", { name: "Generate", exact: true }).click();
    await page.getByText(/cut off at max tokens/).waitFor();
    const output = page.getByRole("region", { name: /Generated tokens/ });
    const tokens = output.locator("[data-i]");
    expect(await tokens.count()).toBe(12);

    const alternatives = page.getByRole("complementary", { name: "Alternatives" });
    await tokens.nth(3).hover();
    const rows = alternatives.getByRole("listitem");
    await expect.poll(() => rows.count()).toBe(5);
    // In sight where the token is, without a look elsewhere.
    const end = await rows.last().evaluate((row) => row.getBoundingClientRect().bottom);
    expect(end).toBeLessThanOrEqual(640);
    const shares = (await rows.allInnerTexts()).map((text) => Number.parseFloat(text.match(/([\d.]+) %/)?.[1] ?? ""));
    expect(shares).toEqual([...shares].sort((a, b) => b - a));
    expect(shares.reduce((sum, share) => sum + share, 0)).toBeLessThanOrEqual(101);

    const before = await tokens.allInnerTexts();
    await tokens.nth(3).click();
    await rows.nth(1).getByRole("button").click();
    await page.getByText(/cut off at max tokens/).waitFor();
    const after = await tokens.allInnerTexts();
    expect(after.slice(0, 3)).toEqual(before.slice(0, 3));
    expect(after[3]).not.toBe(before[3]);
    expect(after.length).toBe(4 + 12);
    expect(complaints).toEqual([]);
    await page.context().close();
});

it("stops, continues and says what is wrong with a field before it is sent", async () => {
    const { page } = await openView(browser, server.url, "completions");
    await page.getByLabel("Max tokens").fill("2000");
    await page.getByLabel("Go on behind end tokens").check();
    await page.getByRole("button", { name: "Generate", exact: true }).click();
    const tokens = page.getByRole("region", { name: /Generated tokens/ }).locator("[data-i]");
    await tokens.nth(5).waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText(/· stopped$/).waitFor();
    const stopped = await tokens.count();
    await page.getByLabel("Max tokens").fill("3");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText(/cut off at max tokens/).waitFor();
    expect(await tokens.count()).toBe(stopped + 3);
    await page.getByLabel("Top p").fill("3");
    await page.getByText("From 0 to 1.").waitFor();
    expect(await page.getByRole("button", { name: "Generate", exact: true }).isDisabled()).toBe(true);
    await page.context().close();
});
