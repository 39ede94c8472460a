// Fails where the page is slower than it may be: `node lighthouse.mjs URL`. One run says little, as Lighthouse's own
// guide to variability has it: the median of five counts.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LEAST = 95;
const RUNS = 5;
const LIGHTHOUSE = "lighthouse@12";
const SHOWN = ["first-contentful-paint", "largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift"];

const report = join(mkdtempSync(join(tmpdir(), "lighthouse-")), "report.json");
const flags = ["--quiet", "--only-categories=performance", "--output=json", `--output-path=${report}`];
const chrome = "--chrome-flags=--headless=new --no-sandbox";
const [url] = process.argv.slice(2);
const scores = [];
for (let run = 0; run < RUNS; run++) {
    execFileSync("npx", ["--yes", LIGHTHOUSE, url, ...flags, chrome], { stdio: ["ignore", "ignore", "inherit"] });
    const { categories, audits } = JSON.parse(readFileSync(report, "utf8"));
    const told = SHOWN.map((name) => `${audits[name].title} ${audits[name].displayValue}`);
    const score = Math.round(categories.performance.score * 100);
    scores.push(score);
    console.log(`${String(score).padStart(4)}  ${told.join(", ")}`);
}
const median = scores.sort((a, b) => a - b)[Math.floor(RUNS / 2)];
console.log(`${String(median).padStart(4)}  performance, the median; at least ${LEAST}`);
if (median < LEAST) process.exit(1);
