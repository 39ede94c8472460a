/** What of a picture can be chosen, the request that it becomes, and what comes back. */

/** What was typed; an empty text leaves the choice to the server. */
export interface Options {
    prompt: string;
    /** What the picture is not to show. */
    negative: string;
    size: string;
    count: string;
    steps: string;
    seed: string;
}

export const defaults: Options = { prompt: "", negative: "", size: "1024x1024", count: "1", steps: "", seed: "" };

/** Sizes on offer; another one can be typed. */
export const sizes = ["512x512", "768x768", "1024x1024", "1024x1536", "1536x1024"] as const;

const MOST_PICTURES = 8;
const LONGEST_SIDE = 4096;

export type Problems = Partial<Record<keyof Options, string>>;

/** What is wrong with what was typed, by the field's name. */
export function problems(options: Options): Problems {
    const found: Problems = {};
    const check = (name: "count" | "steps" | "seed", least: number, most: number) => {
        const text = options[name].trim();
        if (text === "") return;
        const value = Number(text);
        if (Number.isSafeInteger(value) && value >= least && value <= most) return;
        found[name] =
            most < Number.MAX_SAFE_INTEGER
                ? `A whole number from ${least} to ${most}.`
                : `A whole number, at least ${least}.`;
    };
    check("count", 1, MOST_PICTURES);
    check("steps", 1, 1000);
    check("seed", 0, Number.MAX_SAFE_INTEGER);
    const sides = /^(\d+)\s*[x×]\s*(\d+)$/.exec(options.size.trim())?.slice(1).map(Number);
    if (!sides?.every((side) => side >= 16 && side <= LONGEST_SIDE)) {
        found.size = `Width x height in pixels, each up to ${LONGEST_SIDE}, such as 1024x1024.`;
    }
    return found;
}

/** The body of `POST /v1/images/generations`. Call it where there are no problems. */
export function body(options: Options): Record<string, unknown> {
    const asked: Record<string, unknown> = {
        prompt: options.prompt,
        size: options.size.trim().replace(/\s*[x×]\s*/, "x"),
        n: Number(options.count) || 1,
        response_format: "b64_json",
    };
    if (options.negative.trim()) asked.negative_prompt = options.negative;
    if (options.steps.trim()) asked.steps = Number(options.steps);
    if (options.seed.trim()) asked.seed = Number(options.seed);
    return asked;
}

export interface Answer {
    data?: { b64_json?: string; revised_prompt?: string }[];
    output_format?: string;
}

export interface Picture {
    /** Its content as an address that a page can show. */
    source: string;
    /** For a file of its own. */
    name: string;
    /** What it was made of. */
    prompt: string;
}

const types: Record<string, [string, string]> = {
    iVBORw: ["image/png", "png"],
    "/9j/": ["image/jpeg", "jpg"],
    UklGR: ["image/webp", "webp"],
};

/** The pictures of an answer, by what their first bytes say they are. What is none of them is left out. */
export function pictures(answer: Answer, prompt: string, first: number): Picture[] {
    const found: Picture[] = [];
    for (const { b64_json: content, revised_prompt: revised } of answer.data ?? []) {
        const [type, ending] = Object.entries(types).find(([start]) => content?.startsWith(start))?.[1] ?? [];
        if (!type || !content) continue;
        const name = `image-${first + found.length}.${ending}`;
        found.push({ source: `data:${type};base64,${content}`, name, prompt: revised ?? prompt });
    }
    return found;
}
