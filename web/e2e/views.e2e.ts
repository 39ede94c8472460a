import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { violations } from "./support/axe";
import { basicStyles, launch } from "./support/browser";
import { type Server, startScripted } from "./support/server";
import { openView } from "./support/views";

let browser: Browser;
let server: Server;

beforeAll(async () => {
    browser = await launch();
    server = await startScripted({ answers: [{ when: "", say: "Cluck." }] });
});

afterAll(async () => {
    await server.kill();
    await browser.close();
});

/** What is there once a page has all that it shows. */
const ready: Record<string, RegExp> = {
    runtime: /actors, no restarts/,
    graph: /^layers 3 \+ 1$/,
    tokenizer: /^↵/,
    prompt: /of them control tokens/,
    completions: /Nothing generated yet/,
    images: /No image model is loaded/,
    inspector: /Received/,
};

const looks = [
    { width: 1280, height: 800, scheme: "light" },
    { width: 390, height: 844, scheme: "dark" },
] as const;

for (const look of looks) {
    it(`fits ${look.width}×${look.height} and hides nothing from anybody (${look.scheme})`, async () => {
        const { page, complaints } = await openView(browser, server.url, "completions", look);
        for (const [view, sign] of Object.entries(ready)) {
            await page.evaluate((to) => {
                location.hash = to;
            }, `#/${view}`);
            await page.getByText(sign).first().waitFor();
            const wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
            expect(wide, view).toBeLessThanOrEqual(0);
            expect(await basicStyles(page), view).toBe(1);
            const serious = (await violations(page)).filter((line) => /^(serious|critical)/.test(line));
            expect(serious, view).toEqual([]);
            if (view === "completions") {
                await page.getByRole("button", { name: "Generate", exact: true }).click();
                await page.getByText(/ended by itself/).waitFor();
            }
        }
        expect(complaints).toEqual([]);
        await page.context().close();
    });
}

it("offers the image studio only where a model makes images", async () => {
    const { page } = await openView(browser, server.url, "completions");
    await page.getByRole("link", { name: "Completions" }).waitFor();
    expect(await page.getByRole("link", { name: "Images" }).count()).toBe(0);
    await page.context().close();
});
