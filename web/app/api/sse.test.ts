import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { readSse, type SseFrame, SseParser } from "./sse";

const STREAM =
    ": hi\r\n\r\nevent: a\ndata: one\ndata:two\n\ndata: é🐓\r\n\r\nid: 7\ndata\n\nevent: none\n\ndata: [DONE]\n\ndata: cut";
const FRAMES: SseFrame[] = [
    { event: "a", data: "one\ntwo" },
    { event: "message", data: "é🐓" },
    { event: "message", data: "" },
    { event: "message", data: "[DONE]" },
];

describe("SseParser", () => {
    it("gives the same frames whatever pieces a stream comes in", () => {
        fc.assert(
            fc.property(fc.array(fc.integer({ min: 0, max: STREAM.length })), (cuts) => {
                const at = [0, ...cuts.sort((a, b) => a - b), STREAM.length];
                const parser = new SseParser();
                const pieces = at.slice(1).map((end, index) => STREAM.slice(at[index], end));
                expect(pieces.flatMap((piece) => parser.push(piece))).toEqual(FRAMES);
            }),
        );
    });

    it("passes over a byte order mark, and takes lone carriage returns for line ends", () => {
        expect(new SseParser().push("\ufeffdata: a\r\rdata: b\r\r\n")).toEqual([
            { event: "message", data: "a" },
            { event: "message", data: "b" },
        ]);
    });
});

describe("readSse", () => {
    it("puts characters together that are cut within", async () => {
        const bytes = new TextEncoder().encode(STREAM);
        const body = new ReadableStream<Uint8Array>({
            start(controller) {
                for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
                controller.close();
            },
        });
        const frames: SseFrame[] = [];
        for await (const frame of readSse(body)) frames.push(frame);
        expect(frames).toEqual(FRAMES);
    });

    it("ends the request when the reader leaves", async () => {
        let cancelled = false;
        const body = new ReadableStream<Uint8Array>({
            pull: (controller) => controller.enqueue(new TextEncoder().encode("data: x\n\n")),
            cancel: () => {
                cancelled = true;
            },
        });
        for await (const _ of readSse(body)) break;
        expect(cancelled).toBe(true);
    });
});
