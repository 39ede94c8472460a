/** Images as models are given them: no larger than they look at, drawn anew, so that nothing else of the file goes along. */

import type { ImagePart } from "../db/types";
import { AttachError } from "./problem";

/** Pixels of the longer side; models that see scale down what is larger. */
export const LONGEST = 2048;

/** Bytes of an image as PNG beyond which it becomes a JPEG: a photograph, not a drawing. */
const LARGEST_PNG = 3 * 1024 * 1024;

/** How much of a JPEG's quality is kept. */
const QUALITY = 0.9;

export interface Size {
    width: number;
    height: number;
}

/** The size at which an image is given: of the same shape, and as it is where it is small enough. */
export function fitted({ width, height }: Size): Size {
    const scale = Math.min(1, LONGEST / Math.max(width, height));
    const scaled = (side: number) => Math.max(1, Math.round(side * scale));
    return { width: scaled(width), height: scaled(height) };
}

/** Reads an image in any format that the browser knows, as the camera held it, without what else is in the file. */
export async function readImage(file: File): Promise<ImagePart> {
    const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => undefined);
    if (!bitmap) {
        throw new AttachError(`${file.name} could not be read as an image. Save it as PNG or JPEG and attach that.`);
    }
    try {
        const drawn = await encode(bitmap, file.type);
        return { kind: "image", name: file.name, url: await dataUrl(drawn) };
    } finally {
        bitmap.close();
    }
}

async function encode(bitmap: ImageBitmap, type: string): Promise<Blob> {
    if (type !== "image/jpeg") {
        const png = await draw(bitmap).convertToBlob({ type: "image/png" });
        if (png.size <= LARGEST_PNG) return png;
    }
    return draw(bitmap, "white").convertToBlob({ type: "image/jpeg", quality: QUALITY });
}

/** The image on this ground, where it has none of its own. */
function draw(bitmap: ImageBitmap, ground?: string): OffscreenCanvas {
    const { width, height } = fitted(bitmap);
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d");
    if (!context) throw new AttachError("This browser has no room left to draw the image. Close other tabs.");
    if (ground) {
        context.fillStyle = ground;
        context.fillRect(0, 0, width, height);
    }
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, 0, 0, width, height);
    return canvas;
}

function dataUrl(blob: Blob): Promise<string> {
    return new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(String(reader.result));
        reader.onerror = () => reject(reader.error);
        reader.readAsDataURL(blob);
    });
}
