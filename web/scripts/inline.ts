/**
 * The style that everything needs stands in `index.html` itself: so the browser has something to show before it has asked
 * for anything else. The server names its hash in the policy that it sends (`build.rs`).
 */
import type { Plugin } from "vite";

const LINK = /<link rel="stylesheet"[^>]*href="\/([^"]+)"[^>]*>/;

/** Puts the one stylesheet of `index.html` in its place. */
export function inlineStyle(): Plugin {
    let inlined = "";
    return {
        name: "inline-style",
        enforce: "post",
        transformIndexHtml: {
            order: "post",
            handler(html, { bundle }) {
                if (!bundle) return html;
                const [link, name = ""] = LINK.exec(html) ?? [];
                const style = bundle[name];
                if (!link || style?.type !== "asset")
                    throw new Error("index.html has no stylesheet to put in its place");
                if (String(style.source).includes("</")) throw new Error(`${name} would end its own element`);
                inlined = name;
                return html.replace(link, () => `<style>${style.source}</style>`);
            },
        },
        // Parts that are loaded later would ask for it again, and it would then stand behind their own styles and win over them.
        generateBundle(_, bundle) {
            if (!inlined) return;
            delete bundle[inlined];
            for (const part of Object.values(bundle)) {
                if (part.type === "chunk") part.viteMetadata?.importedCss.delete(inlined);
            }
        },
    };
}
