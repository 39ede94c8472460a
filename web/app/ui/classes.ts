/** The names that are there, as one `class` attribute. */
export function classes(...names: (string | false | null | undefined)[]): string {
    return names.filter(Boolean).join(" ");
}
