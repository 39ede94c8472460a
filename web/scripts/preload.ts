/**
 * The chat is loaded when it is shown, like every page, and it is the page that is shown first: its parts are named in
 * `index.html`, so that the browser asks for them together with what asks for them.
 */
import type { Plugin } from "vite";

/** Adds links for the parts of the page in this module. */
export function preload(module: string): Plugin {
    return {
        name: "preload",
        transformIndexHtml: {
            order: "post",
            handler(html, { bundle = {} }) {
                const chunks = Object.values(bundle).filter((part) => part.type === "chunk");
                const parts = new Set<string>();
                const styles = new Set<string>();
                const add = (name: string | undefined) => {
                    const chunk = chunks.find((chunk) => chunk.fileName === name);
                    if (!chunk || parts.has(chunk.fileName)) return;
                    parts.add(chunk.fileName);
                    for (const style of chunk.viteMetadata?.importedCss ?? []) styles.add(style);
                    for (const next of chunk.imports) add(next);
                };
                add(chunks.find((chunk) => chunk.facadeModuleId?.endsWith(module))?.fileName);
                if (chunks.length > 0 && parts.size === 0) throw new Error(`no part of the page holds ${module}`);
                const link = (name: string, attributes: Record<string, string | boolean>) => ({
                    tag: "link",
                    attrs: { ...attributes, crossorigin: true, href: `/${name}` },
                    injectTo: "head" as const,
                });
                const missing = (name: string) => !html.includes(name);
                return [
                    ...[...parts].filter(missing).map((name) => link(name, { rel: "modulepreload" })),
                    ...[...styles].filter(missing).map((name) => link(name, { rel: "preload", as: "style" })),
                ];
            },
        },
    };
}
