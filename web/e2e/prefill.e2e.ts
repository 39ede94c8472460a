import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { answers, closeDialog, launch, open, say, settings } from "./support/browser";
import { type Server, startScripted } from "./support/server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
    server = await startScripted({
        prompt_ms: 2,
        answers: [{ when: "", say: "<think>\n\n</think>\n\nThat was long." }],
    });
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
    await server?.kill();
});

it.each(["chat", "responses", "messages"])("shows how far a long prompt is, over %s", async (protocol) => {
    const { page, context, complaints } = await open(browser, server.url);
    await settings(page, "General");
    await page.getByLabel("Protocol").selectOption(protocol);
    // What begins otherwise is not in the cache.
    await page.getByLabel("System prompt").fill(`You are asked over ${protocol}.`);
    await closeDialog(page);
    await say(page, "hello ".repeat(300));
    const bar = page.getByRole("progressbar", { name: "Reading the prompt" });
    await bar.waitFor();
    const [done, total] = await bar.evaluate((bar: HTMLProgressElement) => [bar.value, bar.max]);
    expect(total).toBeGreaterThan(1000);
    expect(done).toBeLessThanOrEqual(total ?? 0);
    await page.getByText(/^Reading the prompt: [\d,]+ of [\d,]+ tokens$/).waitFor();
    await answers(page).getByText("That was long.").waitFor();
    await bar.waitFor({ state: "detached" });
    expect(complaints).toEqual([]);
    await context.close();
});
