import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { violations } from "./support/axe";
import { answers, basicStyles, closeDialog, type Look, launch, message, open, say, settings } from "./support/browser";
import { type Server, startScripted } from "./support/server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
    server = await startScripted({
        answers: [
            {
                when: "",
                say: "<think>\nHm.\n</think>\n\n# Title\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n```js\n// why\nconst x = `1`;\n```\n\nA [link](https://example.org), `code` and $a^2$.",
            },
            { when: "How is the weather", say: '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>' },
        ],
    });
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
    await server?.kill();
});

const looks: [string, Look][] = [
    ["wide and light", { width: 1280, height: 800, scheme: "light" }],
    ["wide and dark", { width: 1280, height: 800, scheme: "dark" }],
    ["narrow and light", { width: 390, height: 844, scheme: "light" }],
    ["narrow and dark", { width: 390, height: 844, scheme: "dark" }],
];

/** With E2E_SHOTS the page is also put there for people to look at. */
async function shot(page: Page, name: string): Promise<void> {
    const folder = process.env.E2E_SHOTS;
    if (folder) await page.screenshot({ path: `${folder}/${name.replaceAll(" ", "-")}.png` });
}

/** Nothing is wider than the window. */
async function fits(page: Page): Promise<void> {
    const [inside, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    expect(inside).toBeLessThanOrEqual(window ?? 0);
}

it.each(looks)("fits and is accessible, %s", async (name, look) => {
    const { page, context, complaints } = await open(browser, server.url, look);
    const check = async (what: string) => {
        await shot(page, `${name} ${what}`);
        await fits(page);
        expect(await basicStyles(page), what).toBe(1);
        expect(await violations(page), what).toEqual([]);
    };
    await page.getByText("What you write stays in this browser").waitFor();
    await check("new chat");
    await settings(page, "Tools");
    await page.getByLabel("Tools as JSON").fill('{"name": "weather"}');
    await check("tools");
    for (const tab of ["General", "Sampling", "Limits", "Form"]) {
        await page.getByRole("tab", { name: tab }).click();
        await check(tab);
    }
    await closeDialog(page);
    await say(page, "Hello, and a rather long question, to see how it is laid out where there is little room for it.");
    await answers(page).locator("math").waitFor();
    await answers(page)
        .getByRole("button", { name: /^Thought/ })
        .click();
    await check("an answer");
    await say(page, "How is the weather?");
    await page.getByLabel("Result of weather").waitFor();
    await check("a call");
    if ((look.width ?? 0) < 820) {
        await page.getByRole("button", { name: "Conversations and pages" }).click();
        await page.getByRole("navigation", { name: "Conversations" }).getByRole("link").first().waitFor();
        await check("the drawer");
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "detached" });
    }
    await message(page).fill("Typed on");
    expect(complaints).toEqual([]);
    await context.close();
});
