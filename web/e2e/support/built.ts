import { join } from "node:path";

/** What cargo built in the `ci` profile: where it puts everything, or where `CARGO_TARGET_DIR` says. */
export function built(name: string): string {
    const target = process.env.CARGO_TARGET_DIR ?? join(import.meta.dirname, "../../../target");
    return join(target, "ci", name);
}
