import { defineConfig } from "vitest/config";

/** In a browser, against a server: one file after the other, as they share two processors with both. */
export default defineConfig({
    test: {
        root: import.meta.dirname,
        include: ["**/*.e2e.ts"],
        testTimeout: 60_000,
        hookTimeout: 60_000,
        fileParallelism: false,
        retry: 0,
    },
});
