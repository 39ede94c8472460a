import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { answers, closeDialog, launch, open, say, settings } from "./support/browser";
import { type Server, startScripted } from "./support/server";

const call = (name: string, given: unknown) =>
    `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;

let server: Server;
let browser: Browser;

beforeAll(async () => {
    server = await startScripted({
        answers: [
            { when: "", say: "<think>\n\n</think>\n\nNothing to call." },
            {
                when: "weather",
                say: `${call("weather", { city: "Bern" })}\n${call("weather", { city: "Basel" })}`,
                ms: 2,
            },
            { when: "sunny", say: "<think>\n\n</think>\n\nSunny and wet." },
            { when: "compute", say: call("calculator", { expression: "6 * 7" }) },
            { when: '{"result":42}', say: "<think>\n\n</think>\n\nIt is 42." },
        ],
    });
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
    await server?.kill();
});

const WEATHER = {
    name: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

it.each(["chat", "responses", "messages"])("takes results of several calls at once, over %s", async (protocol) => {
    const { page, context, complaints } = await open(browser, server.url);
    await settings(page, "General");
    await page.getByLabel("Protocol").selectOption(protocol);
    await page.getByRole("tab", { name: "Tools" }).click();
    await page.getByLabel("Tools as JSON").fill(JSON.stringify(WEATHER));
    await page.getByText("Declared: weather").waitFor();
    await closeDialog(page);
    await say(page, "How is the weather?");
    const cards = page.getByRole("region", { name: "Call of weather" });
    await cards.nth(1).getByText("Waits for a result").waitFor();
    await cards.nth(0).getByText('"city": "Bern"').waitFor();
    await cards.nth(1).getByText('"city": "Basel"').waitFor();
    const send = page.getByRole("button", { name: "Send all results" });
    expect(await send.isDisabled()).toBe(true);
    for (const [index, result] of ["sunny", "rain, not sunny"].entries()) {
        await cards.nth(index).getByLabel("Result of weather").fill(result);
        await cards.nth(index).getByRole("button", { name: "Use this result" }).click();
        await cards.nth(index).getByText("Result given").waitFor();
    }
    await send.click();
    await answers(page).getByText("Sunny and wet.").waitFor();
    expect(complaints).toEqual([]);
    await context.close();
});

it("runs the calculator by itself and goes on with what it gave", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await settings(page, "Tools");
    await page.getByLabel("Calculator").check();
    await closeDialog(page);
    await say(page, "Please compute");
    const card = page.getByRole("region", { name: "Call of calculator" });
    await card.getByText("Run here").waitFor();
    await card.getByText('"result": 42').waitFor();
    await answers(page).getByText("It is 42.").waitFor();
    expect(complaints).toEqual([]);
    await context.close();
});

it("says what is wrong with a declaration and sends none of it", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await settings(page, "Tools");
    await page.getByLabel("Tools as JSON").fill('[{"name": "a b"}]');
    await page.getByText(/Tool 1 needs a `name`/).waitFor();
    await closeDialog(page);
    const request = page.waitForRequest("**/v1/chat/completions");
    await say(page, "Hello");
    expect((await request).postDataJSON()).not.toHaveProperty("tools");
    expect(complaints).toEqual([]);
    await context.close();
});
