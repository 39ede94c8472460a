import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { inlineStyle } from "./scripts/inline";
import { preload } from "./scripts/preload";

/** Where `npm run dev` and `npm run preview` find the API. */
const server = process.env.BANTAM_URL ?? "http://127.0.0.1:8000";

const routes = [
    "/v1",
    "/health",
    "/ready",
    "/props",
    "/slots",
    "/queue",
    "/metrics",
    "/experts",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/openapi.json",
    "/graph",
    "/actors",
    "/memory",
];
const proxy = Object.fromEntries(routes.map((route) => [route, { target: server, changeOrigin: true }]));

export default defineConfig({
    plugins: [react(), preload("/app/chat/ChatPage.tsx"), inlineStyle()],
    build: {
        target: "es2023",
        // The policy that the page is served with allows no `data:` but for images.
        assetsInlineLimit: 0,
        // The preload helper writes inline styles in no browser, and modulepreload is what all of them know.
        modulePreload: { polyfill: false },
        manifest: "manifest.json",
        reportCompressedSize: false,
        chunkSizeWarningLimit: 2000,
        rolldownOptions: {
            output: {
                // Scripts have one ending, by which the server tells their type.
                assetFileNames: ({ names }) =>
                    names[0]?.endsWith(".mjs") ? "assets/[name]-[hash].js" : "assets/[name]-[hash][extname]",
            },
        },
    },
    worker: { format: "es" },
    server: { proxy },
    preview: { proxy },
    test: { include: ["app/**/*.test.{ts,tsx}"], setupFiles: ["app/testing/setup.ts"] },
});
