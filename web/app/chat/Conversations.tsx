import { navigate } from "../router";
import { Button } from "../ui/Button";

export default function Conversations({ onLeave }: { onLeave: () => void }) {
    const start = () => {
        navigate("chat");
        onLeave();
    };
    return <Button onClick={start}>New chat</Button>;
}
