import { join } from "node:path";
import { build, type Rollup } from "vite";

/** A module of the page as a script that leaves what it exports in a global of this name. */
export async function bundle(module: string, name: string): Promise<string> {
    const built = await build({
        configFile: false,
        logLevel: "silent",
        build: {
            write: false,
            lib: { entry: join(import.meta.dirname, "../../app", module), name, formats: ["iife"] },
        },
    });
    const outputs = (Array.isArray(built) ? built : [built]) as Rollup.RollupOutput[];
    const [script] = outputs.flatMap(({ output }) => output);
    if (script?.type !== "chunk") throw new Error(`${module} did not become a script`);
    return script.code;
}
