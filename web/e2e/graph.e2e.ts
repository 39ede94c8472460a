import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch } from "./support/browser";
import { type Server, startScripted } from "./support/server";
import { openView } from "./support/views";

let browser: Browser;

beforeAll(async () => {
    browser = await launch();
});

afterAll(() => browser.close());

/** The server of a checkpoint among the fixtures, whose graph is real. */
function model(name: string): Promise<Server> {
    return startScripted({ answers: [{ when: "", say: "Cluck." }] }, ["--model", name]);
}

it("folds equal layers, and shows the one that is looked for", async () => {
    const server = await model("qwen3-dense");
    const { page, complaints } = await openView(browser, server.url, "graph");
    const layers = page.getByRole("region", { name: "layer 0, 3 times" });
    await layers.getByText("×3").waitFor();
    await layers.getByRole("button", { name: /^attn_norm / }).waitFor();
    await page.getByRole("searchbox", { name: "Find nodes" }).fill("attn_out.2");
    await page.getByRole("button", { name: /^attn_out\.2/ }).click();
    const detail = page.locator('[data-part="detail"]');
    await detail.getByText("blk.2.attn_output.weight").waitFor();
    await detail.getByText("tokens × 64").first().waitFor();
    expect(await layers.getByRole("combobox").inputValue()).toBe("2");
    expect(await layers.locator('[data-node="attn_out.2"]').getAttribute("aria-pressed")).toBe("true");
    // From node to node along what is read.
    await detail.getByRole("button", { name: "attn.2", exact: true }).click();
    await page.getByRole("heading", { name: "attn.2", exact: true }).waitFor();
    await detail.getByText("k_state").waitFor();
    expect(complaints).toEqual([]);
    await page.context().close();
    await server.kill();
});

it("folds periods of layers, and has the draft beside the model", async () => {
    const server = await model("qwen35-mtp");
    const { page } = await openView(browser, server.url, "graph");
    await page.getByRole("tab", { name: "Draft" }).click();
    await page.locator("[data-node]").first().waitFor();
    await page.context().close();
    await server.kill();
    const moe = await model("qwen35moe-a");
    const { page: of } = await openView(browser, moe.url, "graph");
    await of.getByRole("region", { name: /layer 0, 3 times/ }).waitFor();
    await of.context().close();
    await moe.kill();
});
