import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch } from "./support/browser";
import { startReal } from "./support/real";
import { type Server, startScripted } from "./support/server";
import { openView, stream } from "./support/views";

let browser: Browser;
let server: Server;

beforeAll(async () => {
    browser = await launch();
    server = await startScripted({ answers: [{ when: "", say: "cluck ".repeat(600), ms: 25 }] });
});

afterAll(async () => {
    await server.kill();
    await browser.close();
});

it("is live while four streams run", async () => {
    const { page, complaints } = await openView(browser, server.url, "runtime");
    const idle = page.locator('li[data-state="idle"]');
    await expect.poll(() => idle.count()).toBe(4);
    const prompt = "Tell of hens, at length. ".repeat(20);
    const clients = [await stream(server.url, prompt)];
    // The others come once the first writes, so that they find its beginning.
    const writing = page.locator('li[data-state="decode"]');
    await writing.first().waitFor();
    clients.push(...(await Promise.all([1, 2, 3].map((n) => stream(server.url, `${prompt}${n}`)))));
    await expect.poll(() => writing.count(), { timeout: 30_000 }).toBe(4);
    await page.getByText("4 running").waitFor();
    await page.getByText("4 of 4 busy").waitFor();
    await page
        .getByText(/shares its beginning with request \d+/)
        .first()
        .waitFor();

    const written = async () =>
        Number.parseInt((await writing.first().textContent())?.match(/(\d+) written/)?.[1] ?? "", 10);
    const before = await written();
    await expect.poll(written, { timeout: 30_000 }).toBeGreaterThan(before);
    const chart = page.getByRole("img", { name: /^Generation, tok\/s/ });
    await expect.poll(() => chart.locator("path").first().getAttribute("d"), { timeout: 30_000 }).toMatch(/L.*L/);
    expect(await chart.getAttribute("aria-label")).toMatch(/Now all requests: \d/);

    for (const client of clients) client.abort();
    await expect.poll(() => idle.count(), { timeout: 30_000 }).toBe(4);
    await page.getByText(/kept for later requests/).waitFor();
    expect(complaints).toEqual([]);
    await page.context().close();
});

it("tells who waits where there is no slot", async () => {
    const { page } = await openView(browser, server.url, "runtime");
    const clients = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => stream(server.url, `Hen ${n}`)));
    await page.getByRole("heading", { name: "Queue" }).waitFor();
    await expect.poll(() => page.getByText(/request \d+ · \d+ tokens · waits/).count()).toBe(2);
    for (const client of clients) client.abort();
    await page.getByRole("heading", { name: "Queue" }).waitFor({ state: "detached" });
    await page.context().close();
});

it("tells the ledger and the whole tree of a real server", async () => {
    const real = await startReal(["--parallel", "2"]);
    const { page } = await openView(browser, real.url, "runtime");
    await page.getByText("weights", { exact: true }).waitFor();
    const memory = (await (await fetch(`${real.url}/memory`)).json()) as { ledger: { entries: { what: string }[] } };
    for (const { what } of memory.ledger.entries) await page.getByText(what, { exact: true }).waitFor();
    for (const name of ["root", "registry", "model", "scheduler", "kv", "executor", "slot 0", "slot 1"]) {
        await page.getByText(name, { exact: true }).waitFor();
    }
    await page.getByText(/actors, no restarts/).waitFor();
    await page.context().close();
    await real.kill();
});
