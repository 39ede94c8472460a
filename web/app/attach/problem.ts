/** Why a file cannot be attached, in words for the person. */
export class AttachError extends Error {
    override name = "AttachError";
}
