/** Colours for code: the core and each language are loaded when a block first wants them. */

import type { HLJSApi, LanguageFn } from "highlight.js";
import { createElement, type ReactNode } from "react";
import styles from "./Code.module.css";

export type Highlighter = (text: string) => ReactNode;

interface Language {
    names: string[];
    extension: string;
    load: () => Promise<{ default: LanguageFn }>;
}

const languages: Language[] = [
    {
        names: ["bash", "sh", "shell", "zsh", "console"],
        extension: "sh",
        load: () => import("highlight.js/lib/languages/bash"),
    },
    { names: ["c", "h"], extension: "c", load: () => import("highlight.js/lib/languages/c") },
    {
        names: ["cpp", "c++", "cc", "cuda", "hpp"],
        extension: "cpp",
        load: () => import("highlight.js/lib/languages/cpp"),
    },
    { names: ["csharp", "cs", "c#"], extension: "cs", load: () => import("highlight.js/lib/languages/csharp") },
    { names: ["css", "scss", "less"], extension: "css", load: () => import("highlight.js/lib/languages/css") },
    { names: ["diff", "patch"], extension: "diff", load: () => import("highlight.js/lib/languages/diff") },
    {
        names: ["dockerfile", "docker"],
        extension: "Dockerfile",
        load: () => import("highlight.js/lib/languages/dockerfile"),
    },
    { names: ["go", "golang"], extension: "go", load: () => import("highlight.js/lib/languages/go") },
    { names: ["haskell", "hs"], extension: "hs", load: () => import("highlight.js/lib/languages/haskell") },
    { names: ["ini", "toml"], extension: "toml", load: () => import("highlight.js/lib/languages/ini") },
    { names: ["java"], extension: "java", load: () => import("highlight.js/lib/languages/java") },
    {
        names: ["javascript", "js", "jsx", "mjs"],
        extension: "js",
        load: () => import("highlight.js/lib/languages/javascript"),
    },
    { names: ["json", "jsonc", "json5"], extension: "json", load: () => import("highlight.js/lib/languages/json") },
    { names: ["julia", "jl"], extension: "jl", load: () => import("highlight.js/lib/languages/julia") },
    { names: ["kotlin", "kt"], extension: "kt", load: () => import("highlight.js/lib/languages/kotlin") },
    { names: ["lua"], extension: "lua", load: () => import("highlight.js/lib/languages/lua") },
    { names: ["makefile", "make"], extension: "mk", load: () => import("highlight.js/lib/languages/makefile") },
    { names: ["markdown", "md"], extension: "md", load: () => import("highlight.js/lib/languages/markdown") },
    { names: ["php"], extension: "php", load: () => import("highlight.js/lib/languages/php") },
    { names: ["python", "py", "python3"], extension: "py", load: () => import("highlight.js/lib/languages/python") },
    { names: ["r"], extension: "r", load: () => import("highlight.js/lib/languages/r") },
    { names: ["ruby", "rb"], extension: "rb", load: () => import("highlight.js/lib/languages/ruby") },
    { names: ["rust", "rs"], extension: "rs", load: () => import("highlight.js/lib/languages/rust") },
    { names: ["scala"], extension: "scala", load: () => import("highlight.js/lib/languages/scala") },
    { names: ["sql"], extension: "sql", load: () => import("highlight.js/lib/languages/sql") },
    { names: ["swift"], extension: "swift", load: () => import("highlight.js/lib/languages/swift") },
    {
        names: ["typescript", "ts", "tsx"],
        extension: "ts",
        load: () => import("highlight.js/lib/languages/typescript"),
    },
    { names: ["xml", "html", "svg", "xhtml"], extension: "html", load: () => import("highlight.js/lib/languages/xml") },
    { names: ["yaml", "yml"], extension: "yaml", load: () => import("highlight.js/lib/languages/yaml") },
];

function find(name: string): Language | undefined {
    return languages.find((language) => language.names.includes(name));
}

export function extensionOf(name: string): string {
    return find(name)?.extension ?? "txt";
}

let core: Promise<HLJSApi> | undefined;
const loaded = new Map<Language, Promise<Highlighter | undefined>>();

/** What colours this language; undefined if nothing does. */
export function loadHighlighter(name: string): Promise<Highlighter | undefined> {
    const language = find(name);
    if (!language) return Promise.resolve(undefined);
    const known = loaded.get(language) ?? load(language);
    loaded.set(language, known);
    return known;
}

async function load(language: Language): Promise<Highlighter | undefined> {
    core ??= import("highlight.js/lib/core").then((module) => module.default);
    try {
        const [hljs, { default: grammar }] = await Promise.all([core, language.load()]);
        const name = language.names[0] ?? "";
        hljs.registerLanguage(name, grammar);
        return (text) => elements(tree(hljs.highlight(text, { language: name, ignoreIllegals: true })));
    } catch {
        // Without its grammar code stays plain.
        loaded.delete(language);
        return undefined;
    }
}

interface Node {
    scope?: string;
    children: (Node | string)[];
}

/** The result as a tree, from which elements are made without going through HTML. */
function tree(result: unknown): Node {
    return (result as { _emitter: { rootNode: Node } })._emitter.rootNode;
}

function elements(node: Node): ReactNode {
    return node.children.map((child, key) =>
        typeof child === "string"
            ? child
            : createElement("span", { key, className: styles[colour(child.scope)] }, elements(child)),
    );
}

const colours: Record<string, string> = {
    keyword: "keyword",
    "selector-tag": "keyword",
    built_in: "type",
    type: "type",
    "selector-class": "type",
    "template-tag": "keyword",
    literal: "number",
    number: "number",
    symbol: "number",
    string: "string",
    regexp: "string",
    char: "string",
    title: "title",
    section: "title",
    name: "title",
    attr: "title",
    attribute: "title",
    property: "title",
    "selector-id": "title",
    comment: "comment",
    quote: "comment",
    meta: "comment",
    addition: "addition",
    deletion: "deletion",
};

/** Scopes have parts (`title.function`); the first decides. */
function colour(scope: string | undefined): string {
    return colours[scope?.split(".")[0] ?? ""] ?? "";
}
