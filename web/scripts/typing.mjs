// Measures what typing costs while answers arrive: `node scripts/typing.mjs`, with the scripted server and Chromium as for
// the browser scripts. Nothing is asserted: what a frame takes is the machine's affair too.
//
// Of each case it prints how long frames were apart while keys were struck, how long a key took until what it made was on
// the screen, and the longest tasks of the page's thread by the processor time they took, which others on the same machine
// change little.
import { runnerImport } from "vite";

const support = async (name) =>
    (await runnerImport(new URL(`../e2e/support/${name}.ts`, import.meta.url).pathname)).module;
const { startScripted } = await support("server");
const { answers, launch, message, open, say } = await support("browser");

const FRAME_MS = 1000 / 60;
/** Time that a token takes; TYPING_TOKEN_MS=1 is faster than any reader, and than most servers. */
const TOKEN_MS = Number(process.env.TYPING_TOKEN_MS ?? 5);
/** Twenty keys a second are a fast typist's. */
const KEY_MS = 50;
const TYPED = "The quick brown fox jumps over the lazy dog, and the hen looks on.";
/** Tasks whose parts are told with TYPING_TASKS in the environment. */
const SHOWN = 6;

const paragraph = (n) =>
    `Paragraph ${n} of the **answer**, with \`code\` and some more words to fill the line that it stands on.\n\n` +
    (n % 10 === 9 ? "```js\nconst hens = [1, 2, 3].map((n) => n * 2);\n```\n\n- one\n- two\n\n" : "");
const text = (length) => {
    let text = "";
    for (let n = 0; text.length < length; n++) text += paragraph(n);
    return text;
};

/** Tokens that an answer may have: more than arrive while all is typed. */
const LONGEST = 60_000;

/** A conversation as an exported file has it. */
function conversation(title, said) {
    const messages = said.map((text, index) => ({
        id: `${title}${index}`,
        conversation: title,
        parent: index === 0 ? null : `${title}${index - 1}`,
        role: index % 2 === 0 ? "user" : "assistant",
        at: index,
        revision: 0,
        parts: [{ kind: "text", text }],
        ...(index % 2 === 1 && { answer: { state: "stopped", protocol: "chat", model: "m" } }),
    }));
    const settings = { protocol: "chat", knobs: { max_tokens: LONGEST }, builtins: [], tools: [] };
    const leaf = messages.at(-1).id;
    return { conversation: { id: title, title, named: true, created: 1, updated: 1, leaf, settings }, messages };
}

/** Characters of an answer of 100,000 tokens. Those of the scripted model are mostly single letters, others have about four. */
const LONG = 400_000;
const many = Array.from({ length: 2000 }, (_, n) => (n % 2 === 0 ? `Question ${n}?` : `Answer ${n}: **yes**, \`so\`.`));
const archive = {
    format: "bantam-conversations",
    version: 1,
    conversations: [
        conversation("Few messages", many.slice(0, 2)),
        conversation("Many messages", many),
        conversation("A long answer", ["Please go on for ever.", text(LONG)]),
    ],
};

/** Types, and gives what it took. */
async function typing(browser, page) {
    await message(page).click();
    await page.evaluate(() => {
        const seen = { frames: [], keys: [], on: true };
        window.seen = seen;
        const frame = (at) => {
            seen.frames.push(at);
            if (seen.on) requestAnimationFrame(frame);
        };
        requestAnimationFrame(frame);
        new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) if (entry.name === "keydown") seen.keys.push(entry.duration);
        }).observe({ type: "event", durationThreshold: 16 });
    });
    await browser.startTracing(page, { categories: ["toplevel", "devtools.timeline"] });
    await page.keyboard.type(TYPED, { delay: KEY_MS });
    const trace = JSON.parse((await browser.stopTracing()).toString());
    const seen = await page.evaluate(() => {
        window.seen.on = false;
        return { frames: window.seen.frames, keys: window.seen.keys };
    });
    const typed = await message(page).inputValue();
    if (!typed.endsWith(TYPED)) throw new Error(`typed ${TYPED.length} keys, found ${typed.length}`);
    await message(page).fill("");
    return { seen, tasks: tasks(trace.traceEvents) };
}

/** The tasks of the page's main thread, longest first, by processor time; of the first few what they did. */
function tasks(events) {
    const threads = events.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain");
    const busiest = threads
        .map(({ pid, tid }) => events.filter((e) => e.ph === "X" && e.pid === pid && e.tid === tid))
        .sort((a, b) => b.length - a.length)[0];
    const isTask = (e) => /RunTask$/.test(e.name);
    const all = busiest.filter((e) => isTask(e) && e.tdur !== undefined).sort((a, b) => b.tdur - a.tdur);
    const parts = (task) =>
        busiest
            .filter((e) => !isTask(e) && e.tdur > 500 && e.ts >= task.ts && e.ts + e.dur <= task.ts + task.dur)
            .sort((a, b) => b.tdur - a.tdur)
            .map((e) => `${e.name} ${(e.tdur / 1000).toFixed(1)}`);
    return all.map((task, index) => ({ ms: task.tdur / 1000, what: index < SHOWN ? parts(task) : [] }));
}

const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
const ms = (value) => value.toFixed(1).padStart(6);

function print(name, { seen, tasks }) {
    const apart = seen.frames.slice(1).map((time, index) => time - seen.frames[index]);
    const frames = apart.sort((a, b) => a - b);
    const keys = seen.keys.sort((a, b) => a - b);
    const late = frames.filter((time) => time > 1.5 * FRAME_MS).length;
    const long = tasks.filter((task) => task.ms > FRAME_MS).length;
    console.log(
        `${name}\n` +
            `  frames apart ${ms(at(frames, 0.5))} median ${ms(at(frames, 0.99))} 99th ${ms(frames.at(-1))} ms longest; ` +
            `${late} of ${frames.length} late\n` +
            `  keys to screen ${ms(at(keys, 0.5))} median ${ms(keys.at(-1) ?? 0)} ms longest, of ${keys.length}\n` +
            `  tasks ${ms(tasks[0]?.ms ?? 0)} ms longest, ${long} of ${tasks.length} longer than a frame`,
    );
    if (process.env.TYPING_TASKS)
        for (const task of tasks.slice(0, SHOWN))
            console.log(`    ${ms(task.ms)}  ${task.what.slice(0, 6).join(", ")}`);
}

/** One case, with an answer that arrives all the while. */
async function streaming(browser, page, name, begin) {
    await begin();
    await answers(page, "streaming").last().getByText("Paragraph").first().waitFor();
    const measured = await typing(browser, page);
    if ((await answers(page, "streaming").count()) === 0) throw new Error(`${name}: the answer ended too early`);
    await page.getByRole("button", { name: "Stop" }).click();
    await answers(page, "streaming").waitFor({ state: "detached" });
    print(name, measured);
}

const server = await startScripted(
    {
        answers: [
            { when: "", say: `<think>\n\n</think>\n\n${text(LONGEST)}`, ms: TOKEN_MS },
            { when: "go on for ever", say: text(LONG + LONGEST), ms: TOKEN_MS },
        ],
    },
    ["--context", "1048576", "--parallel", "1"],
);
const browser = await launch();
try {
    const { page } = await open(browser, server.url);
    const file = { name: "export.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(archive)) };
    await page.getByLabel("File to import").setInputFiles(file);
    await page.getByText("Imported 3 conversations.").waitFor();
    print("typing alone", await typing(browser, page));
    const below = async (title, last) => {
        await page.getByRole("link", { name: title }).click();
        await page.getByText(last).waitFor();
        await say(page, "Hello");
    };
    await streaming(browser, page, "while an answer arrives", () => below("Few messages", "Answer 1:"));
    await streaming(browser, page, "… below 2,000 messages", () => below("Many messages", "Answer 1999:"));
    await streaming(browser, page, "… that has 100,000 tokens already", async () => {
        await page.getByRole("link", { name: "A long answer" }).click();
        await page.getByRole("button", { name: "Continue" }).click();
    });
} finally {
    await browser.close();
    await server.kill();
}
