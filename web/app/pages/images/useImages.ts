import { useCallback, useEffect, useRef, useState } from "react";
import { requestJson } from "../../api/client";
import { ApiError, asApiError } from "../../api/errors";
import { type Answer, body, type Options, type Picture, pictures } from "./images";

export interface Images {
    /** The latest first. */
    made: readonly Picture[];
    running: boolean;
    error: ApiError | undefined;
}

/** Pictures made on this page; they are gone with it. */
export function useImages() {
    const [images, setImages] = useState<Images>({ made: [], running: false, error: undefined });
    const abort = useRef<AbortController>(undefined);
    const count = useRef(0);
    useEffect(() => () => abort.current?.abort(), []);

    const make = useCallback(async (options: Options) => {
        abort.current?.abort();
        const own = new AbortController();
        abort.current = own;
        setImages((before) => ({ ...before, running: true, error: undefined }));
        const end = (more: readonly Picture[], error?: ApiError) => {
            if (abort.current !== own) return;
            setImages((before) => ({ made: [...more, ...before.made], running: false, error }));
        };
        try {
            const asked = { body: body(options), signal: own.signal };
            const found = pictures(
                await requestJson<Answer>("/v1/images/generations", asked),
                options.prompt,
                count.current + 1,
            );
            count.current += found.length;
            end(found, found.length > 0 ? undefined : new ApiError("The answer has no picture in it.", { status: -1 }));
        } catch (failure) {
            end([], own.signal.aborted ? undefined : asApiError(failure));
        }
    }, []);

    const stop = useCallback(() => abort.current?.abort(), []);
    return { images, make, stop };
}
