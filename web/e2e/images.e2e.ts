import { readFile } from "node:fs/promises";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { violations } from "./support/axe";
import { answers, closeDialog, launch, open, say, settings } from "./support/browser";
import { bundle } from "./support/bundle";
import { type Server, startScripted } from "./support/server";

let server: Server;
let browser: Browser;

beforeAll(async () => {
    server = await startScripted({ answers: [{ when: "", say: "<think>\n\n</think>\n\nA hen." }] });
    browser = await launch();
});

afterAll(async () => {
    await browser?.close();
    await server?.kill();
});

/** A red point. */
const DATA = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==";
const URL = `data:image/png;base64,${DATA}`;

/** A conversation that was had where a model saw. */
const seen = {
    format: "bantam-conversations",
    version: 1,
    conversations: [
        {
            conversation: {
                id: "c",
                title: "A picture",
                named: true,
                created: 1,
                updated: 1,
                leaf: "a",
                settings: { protocol: "chat", knobs: {}, builtins: [], tools: [] },
            },
            messages: [
                {
                    id: "q",
                    conversation: "c",
                    parent: null,
                    role: "user",
                    at: 1,
                    revision: 0,
                    parts: [
                        { kind: "image", name: "point.png", url: URL },
                        { kind: "text", text: "What is it?" },
                    ],
                },
                {
                    id: "a",
                    conversation: "c",
                    parent: "q",
                    role: "assistant",
                    at: 2,
                    revision: 0,
                    parts: [{ kind: "text", text: "A point." }],
                    answer: { state: "done", protocol: "chat", model: "m" },
                },
            ],
        },
    ],
};

const sent = {
    chat: { type: "image_url", image_url: { url: URL } },
    responses: { type: "input_image", image_url: URL, detail: "auto" },
    messages: { type: "image", source: { type: "base64", media_type: "image/png", data: DATA } },
};

it("shows the images of a conversation, sends them over each protocol and exports them", async () => {
    const { page, context, complaints } = await open(browser, server.url);
    await page.getByLabel("File to import").setInputFiles({
        name: "export.json",
        mimeType: "application/json",
        buffer: Buffer.from(JSON.stringify(seen)),
    });
    await page.getByRole("link", { name: "A picture" }).click();
    await page.getByRole("button", { name: "point.png" }).click();
    const image = page.getByRole("dialog", { name: "point.png" }).getByRole("img", { name: "point.png" });
    expect(await image.evaluate((image: HTMLImageElement) => image.decode().then(() => image.naturalWidth))).toBe(1);
    expect(await violations(page)).toEqual([]);
    await closeDialog(page);
    for (const [index, protocol] of (["chat", "responses", "messages"] as const).entries()) {
        await settings(page, "General");
        await page.getByLabel("Protocol").selectOption(protocol);
        await closeDialog(page);
        const request = page.waitForRequest(new RegExp(`/v1/${protocol === "chat" ? "chat/completions" : protocol}$`));
        await say(page, "And now?");
        const body = (await request).postDataJSON();
        expect((body.messages ?? body.input)[0].content[0]).toEqual(sent[protocol]);
        await answers(page)
            .nth(index + 1)
            .getByText("A hen.")
            .waitFor();
    }
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Export all" }).click();
    expect(await readFile(await (await download).path(), "utf8")).toContain(URL);
    expect(complaints).toEqual([]);
    await context.close();
});

interface Given {
    width: number;
    height: number;
    type: string;
    /** Whether each point has a colour of its own. */
    noisy?: boolean;
}

interface Read {
    type: string;
    width: number;
    height: number;
    bytes: number;
    /** Of the point in the upper left. */
    colour: number[];
}

declare const Images: typeof import("../app/attach/image");

/** Draws an image, red where it is not noisy, and has the page's own reader read it. */
async function read({ width, height, type, noisy }: Given): Promise<Read> {
    const draw = (width: number, height: number) => {
        const context = new OffscreenCanvas(width, height).getContext("2d");
        if (!context) throw new Error("no canvas");
        return context;
    };
    const drawn = draw(width, height);
    drawn.fillStyle = "rgb(255 0 0)";
    drawn.fillRect(0, 0, width, height);
    if (noisy) {
        const points = drawn.getImageData(0, 0, width, height);
        for (let at = 0; at < points.data.length; at++) points.data[at] = at % 4 === 3 ? 255 : Math.random() * 256;
        drawn.putImageData(points, 0, 0);
    }
    const file = new File([await drawn.canvas.convertToBlob({ type })], "a", { type });
    const { url } = await Images.readImage(file);
    const blob = await (await fetch(url)).blob();
    const bitmap = await createImageBitmap(blob);
    const seen = draw(bitmap.width, bitmap.height);
    seen.drawImage(bitmap, 0, 0);
    const colour = [...seen.getImageData(0, 0, 1, 1).data];
    return { type: blob.type, width: bitmap.width, height: bitmap.height, bytes: blob.size, colour };
}

it("scales images down to what models look at, in the browser", async () => {
    // Away from the page's policy, which lets nothing be fetched from an address that is the image itself.
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.evaluate(await bundle("attach/image.ts", "Images"));
    const small = await page.evaluate(read, { width: 30, height: 20, type: "image/png" });
    expect(small).toMatchObject({ type: "image/png", width: 30, height: 20, colour: [255, 0, 0, 255] });
    const large = await page.evaluate(read, { width: 5120, height: 1280, type: "image/webp" });
    expect(large).toMatchObject({ type: "image/png", width: 2048, height: 512 });
    const photo = await page.evaluate(read, { width: 1000, height: 4096, type: "image/jpeg" });
    expect(photo).toMatchObject({ type: "image/jpeg", width: 500, height: 2048 });
    // As PNG it would have as many bytes as it has values.
    const noise = await page.evaluate(read, { width: 2048, height: 1024, type: "image/png", noisy: true });
    expect(noise).toMatchObject({ type: "image/jpeg", width: 2048, height: 1024 });
    expect(noise.bytes).toBeLessThan(3 * 1024 * 1024);
    const broken = page.evaluate(() => Images.readImage(new File(["x"], "a.png", { type: "image/png" })));
    await expect(broken).rejects.toThrow("a.png could not be read as an image. Save it as PNG or JPEG");
    await context.close();
});
