import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

export interface Opened {
    page: Page;
    context: BrowserContext;
    /** What the browser complained about: faults of scripts, and what the page's policy forbade. */
    complaints: string[];
}

export interface Look {
    width?: number;
    height?: number;
    scheme?: "light" | "dark";
}

export function launch(): Promise<Browser> {
    return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
}

/** A browser of its own, as far as what it keeps is concerned, on the chat. */
export async function open(browser: Browser, url: string, look: Look = {}): Promise<Opened> {
    const context = await browser.newContext({
        viewport: { width: look.width ?? 1280, height: look.height ?? 800 },
        colorScheme: look.scheme ?? "light",
        permissions: ["clipboard-read", "clipboard-write"],
    });
    context.setDefaultTimeout(20_000);
    const page = await context.newPage();
    const complaints = watch(page);
    await page.goto(url);
    await message(page).waitFor();
    return { page, context, complaints };
}

function watch(page: Page): string[] {
    const complaints: string[] = [];
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("console", (message) => {
        // A server that is away is what some scripts are about; the browser tells of each request that found none.
        if (message.type() === "error" && !/Failed to load resource|net::ERR/.test(message.text())) {
            complaints.push(message.text());
        }
    });
    return complaints;
}

/** Where messages are written. */
export function message(page: Page) {
    return page.getByRole("textbox", { name: "Message", exact: true });
}

/** Writes and sends. */
export async function say(page: Page, text: string): Promise<void> {
    await message(page).fill(text);
    await page.getByRole("button", { name: "Send", exact: true }).click();
}

/** The answers of the shown branch in this state. */
export function answers(page: Page, state = "done") {
    return page.locator(`article[aria-label="Answer"][data-state="${state}"]`);
}

/** Opens the settings at one of their tabs. */
export async function settings(page: Page, tab: string): Promise<void> {
    await page.getByRole("button", { name: "Settings of this chat" }).click();
    await page.getByRole("tab", { name: tab }).click();
}

export async function closeDialog(page: Page): Promise<void> {
    await page.getByRole("button", { name: "Close" }).click();
    await page.locator("dialog[open]").waitFor({ state: "detached" });
}

/** How many stylesheets of the page have the rules that everything needs: a second one would win over those between them. */
export function basicStyles(page: Page): Promise<number> {
    return page.evaluate(() => {
        const has = (sheet: CSSStyleSheet) =>
            [...sheet.cssRules].some((rule) => rule.cssText.startsWith(":focus-visible "));
        return [...document.styleSheets].filter(has).length;
    });
}

/** Watches, from now on, whether the last answer ever has less on the page than it had: gives how often that was. */
export async function watchLosses(page: Page): Promise<() => Promise<number>> {
    const watch = await page.evaluateHandle(() => {
        const told = { most: 0, losses: 0 };
        const look = () => {
            const text = [...document.querySelectorAll('article[aria-label="Answer"]')].at(-1)?.textContent ?? "";
            if (text.length < told.most / 2) told.losses++;
            told.most = Math.max(told.most, text.length);
        };
        new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
        return told;
    });
    return () => watch.evaluate(({ losses }) => losses);
}
