import type { CallPart, ResultPart } from "../db/types";
import type { Settings, ToolDeclaration } from "../settings/settings";
import { builtin, builtins } from "./builtins";
import type { FromWorker, ToWorker } from "./worker";

/** After this a tool is taken for hung, and its worker is ended. */
const LONGEST_MS = 5000;

let worker: Worker | undefined;
let next = 1;
const waiting = new Map<number, (answer: FromWorker) => void>();

function theWorker(): Worker {
    if (worker) return worker;
    worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: "tools" });
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => waiting.get(data.id)?.(data);
    worker.onerror = () => endWorker("the worker could not be started");
    return worker;
}

function endWorker(why: string): void {
    worker?.terminate();
    worker = undefined;
    for (const [id, answer] of [...waiting]) answer({ id, content: JSON.stringify({ error: why }), failed: true });
}

/** What a built-in tool gives back. A failure is a result too: the model is told of it. */
export async function runBuiltin(call: CallPart): Promise<ResultPart> {
    const id = next++;
    const answer = await new Promise<FromWorker>((resolve) => {
        const timer = setTimeout(() => endWorker(`the tool took longer than ${LONGEST_MS / 1000} s`), LONGEST_MS);
        waiting.set(id, (answer) => {
            clearTimeout(timer);
            waiting.delete(id);
            resolve(answer);
        });
        theWorker().postMessage({ id, name: call.name, arguments: call.arguments } satisfies ToWorker);
    });
    return { kind: "result", callId: call.id, name: call.name, content: answer.content, failed: answer.failed };
}

/** Whether the page runs a call of this name by itself. A declared tool of the same name goes before. */
export function runsHere(name: string, settings: Settings): boolean {
    return (
        settings.builtins.includes(name) && builtin(name) !== undefined && !settings.tools.some((t) => t.name === name)
    );
}

/** All tools that the model is told of. */
export function toolsOf(settings: Settings): ToolDeclaration[] {
    const own = builtins.map((tool) => tool.declaration).filter((tool) => runsHere(tool.name, settings));
    return [...settings.tools, ...own];
}
