import { expect, it } from "vitest";
import { body, defaults, pictures, problems } from "./images";

const hen = { ...defaults, prompt: "a hen" };

it("asks for what was typed and leaves the rest to the server", () => {
    expect(body(hen)).toEqual({ prompt: "a hen", size: "1024x1024", n: 1, response_format: "b64_json" });
    const all = { ...hen, negative: "foxes", size: "512 × 768", count: "3", steps: "20", seed: "0" };
    expect(body(all)).toMatchObject({ negative_prompt: "foxes", size: "512x768", n: 3, steps: 20, seed: 0 });
});

it("says what is wrong with each field", () => {
    expect(problems(hen)).toEqual({});
    const wrong = { ...hen, size: "large", count: "0", steps: "1.5", seed: "-1" };
    expect(Object.keys(problems(wrong)).sort()).toEqual(["count", "seed", "size", "steps"]);
    for (const size of ["", "0x512", "512", "512x9999", "512x512x3"]) {
        expect(problems({ ...hen, size }).size, size).toMatch(/such as 1024x1024/);
    }
});

it("shows pictures of kinds that it knows and nothing else", () => {
    const data = [
        { b64_json: "iVBORw0KGgo" },
        { b64_json: "PHNjcmlwdD4" },
        {},
        { b64_json: "/9j/4AA", revised_prompt: "two hens" },
    ];
    const found = pictures({ data }, "a hen", 5);
    expect(found.map(({ name, prompt }) => [name, prompt])).toEqual([
        ["image-5.png", "a hen"],
        ["image-6.jpg", "two hens"],
    ]);
    expect(found[0]?.source).toBe("data:image/png;base64,iVBORw0KGgo");
    expect(pictures({}, "", 1)).toEqual([]);
});
