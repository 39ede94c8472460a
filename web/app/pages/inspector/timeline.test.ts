import { expect, it } from "vitest";
import { arrivals, gist, matches, pretty } from "./timeline";

const frame = (at: number, data = "") => ({ at, event: "message", data });

it("counts the frames of each part of the time", () => {
    const frames = [0, 10, 55, 99, 100].map((at) => frame(at));
    expect(arrivals({ frames, duration: 100 }, 4)).toEqual([2, 0, 1, 2]);
    expect(arrivals({ frames: [], duration: undefined }, 2)).toEqual([0, 0]);
    // A request that has not ended takes as long as its last frame.
    expect(arrivals({ frames: [frame(10), frame(20)], duration: undefined }, 2)).toEqual([0, 2]);
});

it("finds requests by all words, wherever they stand", () => {
    const record = {
        ...{ id: 1, started: 0, method: "POST", path: "/v1/messages", headers: {}, body: '{"max_tokens":5}' },
        ...{ status: 200, responseHeaders: {}, response: undefined, framesDropped: 0 },
        ...{ firstByte: 1, duration: 2, failure: undefined, frames: [frame(1, "Chicken")] },
    };
    for (const filter of ["", "post", "MESSAGES 200", "max_tokens", "chicken post"])
        expect(matches(record, filter)).toBe(true);
    for (const filter of ["get", "post 404", "duck"]) expect(matches(record, filter)).toBe(false);
});

it("tells what events bring in all protocols", () => {
    const brings: [unknown, string][] = [
        [{ choices: [{ delta: { content: " a" } }] }, '" a"'],
        [{ choices: [{ delta: { reasoning_content: "Hm" } }] }, '"Hm"'],
        [{ choices: [{ text: "b\n" }] }, '"b\\n"'],
        [{ type: "content_block_delta", delta: { type: "text_delta", text: "c" } }, '"c"'],
        [{ type: "response.output_text.delta", delta: "d" }, '"d"'],
    ];
    for (const [event, text] of brings) expect(gist(JSON.stringify(event))).toBe(text);
    for (const whole of ["[DONE]", '{"choices":[]}', "null", '{"choices":[{"delta":{"content":""}}]}']) {
        expect(gist(whole)).toBe(whole);
    }
});

it("shows the structure of JSON only", () => {
    expect(pretty('{"a":[1]}')).toBe('{\n  "a": [\n    1\n  ]\n}');
    expect(pretty("[DONE]")).toBe("[DONE]");
});
