import { built } from "./built";
import { type Server, start } from "./server";

const BINARY = process.env.BANTAM_BIN ?? built("bantam");
/** A model that says something; `demo` is fetched where it is not there yet. */
const MODEL = process.env.BANTAM_TEST_MODEL ?? "demo";

/** Starts the server as people do. */
export function startReal(flags: readonly string[] = []): Promise<Server> {
    return start(BINARY, ["serve", MODEL, "--port", "0", ...flags]);
}
