// Fails where the page is slower than it may be: `node lighthouse.mjs URL`.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LEAST = 95;
const LIGHTHOUSE = "lighthouse@12";

const report = join(mkdtempSync(join(tmpdir(), "lighthouse-")), "report.json");
const flags = ["--quiet", "--only-categories=performance", "--output=json", `--output-path=${report}`];
const chrome = "--chrome-flags=--headless=new --no-sandbox";
const [url] = process.argv.slice(2);
execFileSync("npx", ["--yes", LIGHTHOUSE, url, ...flags, chrome], { stdio: ["ignore", "ignore", "inherit"] });
const { categories, audits } = JSON.parse(readFileSync(report, "utf8"));
for (const name of [
    "first-contentful-paint",
    "largest-contentful-paint",
    "total-blocking-time",
    "cumulative-layout-shift",
]) {
    console.log(`${audits[name].displayValue.padStart(8)}  ${audits[name].title}`);
}
const score = Math.round(categories.performance.score * 100);
console.log(`${String(score).padStart(8)}  performance; at least ${LEAST}`);
if (score < LEAST) process.exit(1);
