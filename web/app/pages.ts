/** The pages, one row each. A new page needs a row here and nothing else. */

import {
    Activity,
    Bug,
    FileText,
    Hash,
    Image,
    type LucideIcon,
    MessageSquare,
    TextCursorInput,
    Workflow,
} from "lucide-react";
import { type ComponentType, type LazyExoticComponent, lazy } from "react";
import type { Props } from "./api/props";

export interface PageProps {
    /** What stands after the page's name in the address. */
    rest: string;
}

export interface Page {
    /** Its name in the address: `#/path`. */
    path: string;
    title: string;
    icon: LucideIcon;
    /** The page itself; the module's default export, loaded when it is first shown. */
    view: LazyExoticComponent<ComponentType<PageProps>>;
    /** Whether the navigation has it, given what the server tells of itself. Absent: always. */
    shown?: (props: Props | undefined) => boolean;
}

export const pages: readonly Page[] = [
    { path: "chat", title: "Chat", icon: MessageSquare, view: lazy(() => import("./chat/ChatPage")) },
    { path: "runtime", title: "Runtime", icon: Activity, view: lazy(() => import("./pages/dashboard/DashboardPage")) },
    { path: "graph", title: "Graph", icon: Workflow, view: lazy(() => import("./pages/graph/GraphPage")) },
    { path: "tokenizer", title: "Tokenizer", icon: Hash, view: lazy(() => import("./pages/tokenizer/TokenizerPage")) },
    { path: "prompt", title: "Prompt", icon: FileText, view: lazy(() => import("./pages/prompt/PromptPage")) },
    {
        path: "completions",
        title: "Completions",
        icon: TextCursorInput,
        view: lazy(() => import("./pages/completions/CompletionsPage")),
    },
    {
        path: "images",
        title: "Images",
        icon: Image,
        view: lazy(() => import("./pages/images/ImagesPage")),
        shown: (props) => props?.modalities.image_output ?? false,
    },
    { path: "inspector", title: "Requests", icon: Bug, view: lazy(() => import("./pages/inspector/InspectorPage")) },
];
