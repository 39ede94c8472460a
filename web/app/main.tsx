import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import "./style/tokens.css";
import "./style/base.css";
import { applyTheme } from "./shell/theme";

applyTheme();
const root = document.getElementById("root");
if (root) {
    createRoot(root).render(
        <StrictMode>
            <App />
        </StrictMode>,
    );
}
