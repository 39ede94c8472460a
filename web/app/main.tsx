import { StrictMode, startTransition } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import "./style/tokens.css";
import "./style/base.css";
import { applyTheme } from "./shell/theme";

applyTheme();
const root = document.getElementById("root");
if (root) {
    const page = createRoot(root);
    // Put together in pieces, between which the browser answers to who is at it already.
    startTransition(() =>
        page.render(
            <StrictMode>
                <App />
            </StrictMode>,
        ),
    );
}
