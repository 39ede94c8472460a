import readXlsxFile from "read-excel-file/web-worker";

/** Rows of a sheet beyond which the rest is left out. */
const LONGEST = 20_000;

/** The sheets of an Excel workbook as Markdown tables. */
export async function sheetText(bytes: ArrayBuffer): Promise<string> {
    const sheets = await readXlsxFile(bytes);
    return sheets.map(({ sheet, data }) => `## ${sheet}\n\n${table(data)}`).join("\n\n");
}

export function table(rows: readonly (readonly unknown[])[]): string {
    const width = Math.max(0, ...rows.map((row) => row.length));
    if (width === 0) return "(empty)";
    const line = (cells: readonly unknown[]) =>
        `| ${Array.from({ length: width }, (_, column) => cell(cells[column])).join(" | ")} |`;
    const [head = [], ...body] = rows;
    const shown = body.slice(0, LONGEST).map(line);
    const left = body.length - shown.length;
    const rule = `|${" --- |".repeat(width)}`;
    return [line(head), rule, ...shown, ...(left > 0 ? ["", `(${left} more rows)`] : [])].join("\n");
}

function cell(value: unknown): string {
    if (value === null || value === undefined) return "";
    if (value instanceof Date) return value.toISOString().replace(/T00:00:00\.000Z$/, "");
    return String(value)
        .replace(/\|/g, "\\|")
        .replace(/\s*\n\s*/g, " ");
}
