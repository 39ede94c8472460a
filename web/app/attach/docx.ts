import mammoth from "mammoth";
import { htmlToMarkdown } from "./html";

/** The text of a Word document, with its headings, lists and tables as Markdown. */
export async function docxText(bytes: ArrayBuffer): Promise<string> {
    const convertImage = mammoth.images.imgElement(() => Promise.resolve({ src: "" }));
    const { value } = await mammoth.convertToHtml({ arrayBuffer: bytes }, { convertImage });
    return htmlToMarkdown(value);
}
