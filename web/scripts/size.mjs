// Fails when what the browser loads before the chat can be used is larger than it may be.
import { readFileSync, rmSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMIT_KB = 400;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("manifest.json", dist), "utf8"));

/** The chunk's files and those of the chunks that it imports at once. */
function files(name, seen = new Set()) {
    if (seen.has(name)) return [];
    seen.add(name);
    const chunk = manifest[name];
    return [chunk.file, ...(chunk.css ?? []), ...(chunk.imports ?? []).flatMap((other) => files(other, seen))];
}

const first = new Set(["index.html", ...files("index.html"), ...files("app/chat/ChatPage.tsx")]);
let total = 0;
for (const file of first) {
    const size = gzipSync(readFileSync(new URL(file, dist))).length;
    total += size;
    console.log(`${(size / 1024).toFixed(1).padStart(7)} KB  ${file}`);
}
console.log(`${(total / 1024).toFixed(1).padStart(7)} KB  first load of the chat, gzip; at most ${LIMIT_KB}`);
// The server has no use for it.
rmSync(new URL("manifest.json", dist));
if (total > LIMIT_KB * 1024) process.exit(1);
