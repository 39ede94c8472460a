import { createContext } from "react";

/** Where a page's header goes when there is little room; null where it stays in the page. */
export const BarContext = createContext<HTMLElement | null>(null);
