import type { ProtocolName } from "../settings/settings";
import { chat } from "./chat";
import { messages } from "./messages";
import { responses } from "./responses";
import type { Protocol } from "./types";

export const protocols: Record<ProtocolName, Protocol> = { chat, responses, messages };

/** Those that the server can talk. */
export function offered(capabilities: Record<string, boolean | undefined> | undefined): Protocol[] {
    return Object.values(protocols).filter((protocol) => capabilities?.[protocol.name] !== false);
}
