import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { answers, launch, message, open } from "./support/browser";
import { type Server, startScripted } from "./support/server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
    server = await startScripted({
        answers: [
            { when: "", say: "<think>\n\n</think>\n\nNo file." },
            { when: "The hen crossed the road", say: "<think>\n\n</think>\n\nAbout a hen." },
        ],
    });
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
    await server?.kill();
});

const fixture = (name: string) => join(import.meta.dirname, "fixtures", name);

it.each([
    ["hen.pdf", "The hen crossed the road.\nOn page two she rested."],
    ["hen.docx", "# A hen\n\nThe hen crossed the road.\n\n- first\n- second\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"],
    ["hen.xlsx", "## Hens\n\n| name | eggs |\n| --- | --- |\n| The hen crossed the road | 3 |"],
    ["hen.csv", "name,eggs\nThe hen crossed the road,3"],
])("reads %s in the browser and sends its text", async (name, text) => {
    const { page, context, complaints } = await open(browser, server.url);
    await page.getByLabel("Files to attach").setInputFiles(fixture(name));
    const attached = page.getByRole("list", { name: "Attached" });
    await attached.getByText(name).waitFor();
    await attached.getByText(/\d tokens?/).waitFor();
    await message(page).fill("What is it about?");
    const request = page.waitForRequest("**/v1/chat/completions");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    const { content } = (await request).postDataJSON().messages.at(-1);
    const squeezed = (text: string) => text.replace(/\n+/g, "\n");
    expect(squeezed(content)).toBe(squeezed(`<file name="${name}">\n${text}\n</file>\n\nWhat is it about?`));
    await answers(page).getByText("About a hen.").waitFor();
    await page.getByRole("button", { name }).click();
    await page.getByRole("dialog", { name }).getByText("The hen crossed the road").waitFor();
    expect(complaints).toEqual([]);
    await context.close();
});

it("takes what is dropped and pasted, and says where an image was dropped why it is not taken", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    const transfer = await page.evaluateHandle(() => {
        const data = new DataTransfer();
        data.items.add(new File(["fn main() {}"], "main.rs", { type: "" }));
        data.items.add(new File(["x"], "hen.png", { type: "image/png" }));
        return data;
    });
    // Anywhere on the page: the browser would leave it for the file.
    await page.getByRole("main").dispatchEvent("drop", { dataTransfer: transfer });
    const composer = page.getByRole("region", { name: "Write a message" });
    await composer.getByRole("list", { name: "Attached" }).getByText("main.rs").waitFor();
    const refused = composer
        .getByRole("alert")
        .getByText("hen.png is an image, and the model that is loaded sees none.");
    await refused.waitFor();
    await composer.getByRole("button", { name: "Dismiss" }).click();
    await refused.waitFor({ state: "detached" });
    await page.evaluate((text) => navigator.clipboard.writeText(text), "long ".repeat(3000));
    await message(page).press("ControlOrMeta+v");
    await page.getByRole("list", { name: "Attached" }).getByText("pasted.txt").waitFor();
    await page.getByRole("button", { name: "Remove main.rs" }).click();
    await page.getByText("main.rs").waitFor({ state: "detached" });
    expect(complaints).toEqual([]);
    await context.close();
});

it("keeps the page where a file is dropped that nothing takes", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await page.goto(`${server.url}/#/tokenizer`);
    await page.getByRole("heading", { name: "Tokenizer" }).waitFor();
    const left = await page.evaluate(() => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(["fn main() {}"], "main.rs"));
        const drop = (kind: string) =>
            document.body.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
        return { over: drop("dragover"), drop: drop("drop") };
    });
    // False: the browser does nothing of its own.
    expect(left).toEqual({ over: false, drop: false });
    expect(complaints).toEqual([]);
    await context.close();
});
