import type { PageProps } from "../pages";

export default function ChatPage({ rest }: PageProps) {
    return <p>{rest || "New chat"}</p>;
}
