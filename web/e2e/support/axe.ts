import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const source = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Found {
    violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
}

/** What axe finds against, in lines that tell where. */
export async function violations(page: Page): Promise<string[]> {
    // Evaluated by the debugger, to which the page's policy does not apply.
    await page.evaluate(source);
    const found = (await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")) as Found;
    return found.violations.flatMap(({ id, impact, nodes }) =>
        nodes.map(({ html, failureSummary }) => `${impact} ${id}: ${html}\n${failureSummary}`),
    );
}
