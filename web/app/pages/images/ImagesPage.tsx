import { Download, ImagePlus, Square } from "lucide-react";
import { useState } from "react";
import { useServer } from "../../api/server";
import { Button } from "../../ui/Button";
import { Card } from "../../ui/Card";
import { AreaField, TextField } from "../../ui/Field";
import { ErrorNotice, Notice } from "../../ui/Notice";
import { PageFrame } from "../../ui/PageFrame";
import styles from "./Images.module.css";
import { defaults, type Options, type Picture, problems, sizes } from "./images";
import { useImages } from "./useImages";

/** Pictures from a text, where the model that is loaded makes some. */
export default function ImagesPage() {
    const { props } = useServer();
    return (
        <PageFrame
            title="Images"
            lead="Pictures from a text. They stay on this page until it is left; download what is to last."
        >
            {props && !props.modalities.image_output ? (
                <Notice title="No image model is loaded.">
                    {props.model.title ?? props.model.name} writes text. This page makes pictures as soon as the server
                    has a model that does (<code>modalities.image_output</code> of <code>GET /props</code>).
                </Notice>
            ) : (
                <Studio />
            )}
        </PageFrame>
    );
}

function Studio() {
    const [options, setOptions] = useState<Options>(defaults);
    const { images, make, stop } = useImages();
    const wrong = problems(options);
    const ready = options.prompt.trim() !== "" && Object.keys(wrong).length === 0 && !images.running;
    const field = (name: keyof Options) => ({
        value: options[name],
        error: wrong[name],
        onChange: (event: { target: { value: string } }) => setOptions({ ...options, [name]: event.target.value }),
    });
    return (
        <div className={styles.columns}>
            <Card title="What to show">
                <AreaField
                    label="Prompt"
                    className={styles.prompt}
                    hint="Ctrl+Enter makes the picture."
                    onKeyDown={(event) => {
                        if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && ready) {
                            event.preventDefault();
                            void make(options);
                        }
                    }}
                    {...field("prompt")}
                />
                <AreaField label="Leave out" hint="what it is not to show" {...field("negative")} />
                <div className={styles.few}>
                    <TextField label="Size" list="image-sizes" {...field("size")} />
                    <TextField label="Pictures" inputMode="numeric" {...field("count")} />
                    <TextField label="Steps" inputMode="numeric" placeholder="server's choice" {...field("steps")} />
                    <TextField label="Seed" inputMode="numeric" placeholder="random" {...field("seed")} />
                </div>
                <datalist id="image-sizes">
                    {sizes.map((size) => (
                        <option key={size} value={size} />
                    ))}
                </datalist>
                <div className="row">
                    {images.running ? (
                        <Button look="primary" icon={Square} onClick={stop}>
                            Stop
                        </Button>
                    ) : (
                        <Button look="primary" icon={ImagePlus} disabled={!ready} onClick={() => void make(options)}>
                            Make
                        </Button>
                    )}
                </div>
            </Card>
            <div className="stack">
                {images.error && <ErrorNotice error={images.error} />}
                <p role="status" className="muted">
                    {images.running ? "Making…" : images.made.length === 0 && "Nothing made yet."}
                </p>
                <div className={styles.gallery}>
                    {images.made.map((picture) => (
                        <Shown key={picture.name} picture={picture} />
                    ))}
                </div>
            </div>
        </div>
    );
}

function Shown({ picture }: { picture: Picture }) {
    return (
        <figure className={styles.picture}>
            <img src={picture.source} alt={picture.prompt} />
            <figcaption>
                <span title={picture.prompt}>{picture.prompt}</span>
                <a href={picture.source} download={picture.name} aria-label={`Download ${picture.name}`}>
                    <Download size={16} aria-hidden /> {picture.name}
                </a>
            </figcaption>
        </figure>
    );
}
