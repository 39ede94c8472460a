//! Calls that are JSON: Qwen2.5, Qwen3, whatever is taught to call like Hermes models, Llama, and distilled models.

use crate::support::{Case, behind, call, case, content, cut, reasoning};

pub(super) fn cases() -> Vec<Case> {
    [hermes(), broken(), listed(), quoted(), llama(), distilled()].concat()
}

fn hermes() -> Vec<Case> {
    let one = "<tool_call>\n{\"name\": \"lookup\", \"arguments\": {\"word\": \"ebb\", \"limit\": 2}}\n</tool_call>";
    let told = call("lookup", "{\"word\": \"ebb\", \"limit\": 2}");
    vec![
        case("qwen2", "Plain, with 1 < 2 and a tail. \n", [content("Plain, with 1 < 2 and a tail. \n")]),
        case("gemma3", one, [told.clone()]),
        case("smollm2", &format!("Sure.\n{one}"), [content("Sure."), told.clone()]),
        case("qwen2", &format!("I look.\n\n{one}\n{one}\n"), [content("I look."), told.clone(), told.clone()]),
        case("qwen2", &format!("{one}\nDone."), [told.clone(), content("Done.")]),
        case("qwen2", &format!("{one} \n\nFirst.\n{one}"), [told.clone(), content("First."), told.clone()]),
        case(
            "qwen3",
            &format!("<think>\nHm.\n\nYes.\n</think>\n\nSo:\n{one}"),
            [reasoning("Hm.\n\nYes."), content("So:"), told.clone()],
        ),
        case("qwen3", "<think>\n\n</think>\n\n    indented", [content("    indented")]),
        case("qwen3", "<think>a<b </thin </think>c", [reasoning("a<b </thin "), content("c")]),
        case("qwen3", "Write <think> to think.", [content("Write <think> to think.")]),
        case("qwen3", "\n<think>\nx\n</think>", [reasoning("x")]),
        behind("qwen3", "<think>\n\n</think>\n\n", "\n\nYes.", [content("Yes.")]),
        behind("qwen3", "<think>\n", "Hm.\n</think>\n\nYes.", [reasoning("Hm."), content("Yes.")]),
        behind("qwen3", "<think>", "\nHm.\n\n</think>Yes.", [reasoning("Hm.\n"), content("Yes.")]),
        behind("qwen3", "<think>\n", &format!("I call.\n{one}"), [reasoning("I call."), told.clone()]),
        behind("qwen3", "<think>\n", "Never done \n", [reasoning("Never done \n")]),
        // Keys in any order, a list, arguments as a string, none, and nothing but the name.
        case(
            "qwen2",
            "<tool_call>{\"arguments\": {\"word\": \"a}\\\"b\"}, \"id\": [1, {}], \"name\": \"lookup\"}</tool_call>",
            [call("lookup", "{\"word\": \"a}\\\"b\"}")],
        ),
        case(
            "qwen2",
            "<tool_call>[{\"name\":\"lookup\",\"arguments\":{}},\n{\"name\":\"list_files\"}]</tool_call>",
            [call("lookup", "{}"), call("list_files", "{}")],
        ),
        case(
            "qwen2",
            r#"<tool_call>{"name": "lookup", "arguments": "{\"word\": \"\u00e9\\n\"}"}</tool_call>"#,
            [call("lookup", r#"{"word": "é\n"}"#)],
        ),
        case("qwen2", r#"<tool_call>{"name": "lookup", "arguments": ""}</tool_call>"#, [call("lookup", "{}")]),
        case("qwen2", r#"<tool_call>{"name": "lookup", "arguments": null}</tool_call>"#, [call("lookup", "{}")]),
        case(
            "qwen2",
            "<tool_call>{\"name\": \"lookup\", \"arguments\": {\"word\": \"a\nb\"}}</tool_call>",
            [call("lookup", "{\"word\": \"a\\nb\"}")],
        ),
    ]
}

fn broken() -> Vec<Case> {
    let head = "<tool_call>\n{\"name\": \"lookup\", \"arguments\": ";
    let good = "<tool_call>\n{\"name\": \"list_files\", \"arguments\": {}}\n</tool_call>";
    vec![
        case("qwen2", &format!("{head}{{\"word\": \"eb"), [cut("lookup", "{\"word\": \"eb")]),
        case("qwen2", &format!("{head}{{\"word\": \"ebb\"}}"), [call("lookup", "{\"word\": \"ebb\"}")]),
        case("qwen2", &format!("{head}{{\"word\": \"ebb\"}}}}"), [call("lookup", "{\"word\": \"ebb\"}")]),
        case("qwen2", &format!("{head}{{\"word\": \"ebb\"}}\n</tool_call>"), [call("lookup", "{\"word\": \"ebb\"}")]),
        // A brace too many, and calls between one pair of marks.
        case("qwen2", &format!("{head}{{}}}}}}\n</tool_call>\nDone."), [call("lookup", "{}"), content("Done.")]),
        case(
            "qwen2",
            &format!("{head}{{}}}}\n{{\"name\": \"fly\"}}\n</tool_call>"),
            [call("lookup", "{}"), call("fly", "{}")],
        ),
        case("qwen2", &format!("{head}{{}}}} }} Done."), [call("lookup", "{}"), content("} Done.")]),
        case(
            "qwen2",
            &format!("{head}{{}}}}\n{{\"x\": 1}} Done."),
            [call("lookup", "{}"), content("{\"x\": 1} Done.")],
        ),
        // A bracket is missing, a value is; the next call is read all the same.
        case(
            "qwen2",
            &format!("{head}{{\"word\": [1}}\n</tool_call>\n{good}"),
            [cut("lookup", "{\"word\": [1}\n"), call("list_files", "{}")],
        ),
        case(
            "qwen2",
            &format!("{head}{{\"word\": }}}}\n</tool_call>\n{good}"),
            [call("lookup", "{\"word\": }"), call("list_files", "{}")],
        ),
        case(
            "qwen2",
            "<tool_call>\n{\"name\": \"fly\", \"arguments\": {\"to\": 1}}\n</tool_call>",
            [call("fly", "{\"to\": 1}")],
        ),
        // Without a name it is no call.
        case(
            "qwen2",
            &format!("<tool_call>\n{{\"title\": 1}}\n</tool_call>\n{good}"),
            [content("<tool_call>\n{\"title\": 1}\n</tool_call>"), call("list_files", "{}")],
        ),
        case("qwen2", &format!("<tool_call>{good}"), [content("<tool_call>"), call("list_files", "{}")]),
        case("qwen2", "The tag <tool_call> begins a call.", [content("The tag <tool_call> begins a call.")]),
        // What is there of a mark at the end is not shown, unless it is too little to tell.
        case("qwen2", "Hm.\n<tool_ca", [content("Hm.")]),
        case("qwen2", "Hm.\n<tool_call>\n{\"na", [content("Hm.")]),
        case("qwen2", "1 <", [content("1 <")]),
        case("qwen2", "<b", [content("<b")]),
        case("qwen3", "<think>\nHm.\n</thi", [reasoning("Hm.")]),
    ]
}

fn listed() -> Vec<Case> {
    let calls = "<TOOLCALL>[{\"name\": \"lookup\", \"arguments\": {\"word\": \"a\"}}, \
        {\"name\": \"list_files\", \"arguments\": {}}]</TOOLCALL>";
    let [first, second] = [call("lookup", "{\"word\": \"a\"}"), call("list_files", "{}")];
    let thought = format!("Hm.\n</think>\n{calls}");
    vec![
        behind("nemotron-nano2", "<think>\n", &thought, [reasoning("Hm."), first.clone(), second.clone()]),
        case("nemotron-nano2", &format!("{calls}\nDone."), [first, second, content("Done.")]),
        case(
            "nemotron-nano2",
            "<TOOLCALL>[{\"name\": \"lookup\"}, {\"x\": 1}]</TOOLCALL>",
            [call("lookup", "{}"), content(", {\"x\": 1}]</TOOLCALL>")],
        ),
        case("nemotron-nano2", "<TOOLCALL>[{\"name\": \"lookup\"}, {\"name", [call("lookup", "{}")]),
    ]
}

fn quoted() -> Vec<Case> {
    let example = "<tool_call>\n{\"name\": \"lookup\", \"arguments\": {}}\n</tool_call>";
    let quoted = |text: &str| {
        let answer = "\n</think>\n\nYes.";
        behind("qwen3", "<think>\n", &format!("{text}{answer}"), [reasoning(text), content("Yes.")])
    };
    vec![
        quoted("A call begins with <tool_call> and {\"name\": follows."),
        quoted("It looks like <tool_call>\n{\"name\": \"example\", \"arguments\": {}}\n</tool_call>."),
        quoted("It looks like <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>."),
        quoted(&format!("It looks like `{example}`.")),
        quoted(&format!("It looks like this:\n```\n{example}\n```\nGood.")),
        quoted("<tool_call>\n<function=example>\n<parameter=a>"),
    ]
}

fn llama() -> Vec<Case> {
    let object = "{\"name\": \"lookup\", \"parameters\": {\"word\": \"ebb\", \"limit\": 2}}";
    let told = call("lookup", "{\"word\": \"ebb\", \"limit\": 2}");
    vec![
        case("llama", "Hello.", [content("Hello.")]),
        case("llama", object, [told.clone()]),
        case("llama", &format!("\n {object}\n"), [told.clone()]),
        case("llama", &format!("<|python_tag|>{object}"), [told.clone()]),
        case("llama", &format!("{object}\n{object}"), [told.clone(), told.clone()]),
        case("llama", "{\"name\": \"lookup\", \"arguments\": {}}", [call("lookup", "{}")]),
        case(
            "llama",
            "{\"type\": \"function\", \"function\": {\"name\": \"lookup\", \"parameters\": {\"word\": \"a\"}}}",
            [call("lookup", "{\"word\": \"a\"}")],
        ),
        case("llama", "{\"type\": \"function\", \"name\": \"lookup\", \"parameters\": {}}", [call("lookup", "{}")]),
        case(
            "llama",
            "{\"parameters\": {\"word\": \"a\"}, \"name\": \"lookup\"}",
            [call("lookup", "{\"word\": \"a\"}")],
        ),
        case("llama", "{\"name\": \"lookup\", \"parameters\": {\"word\": \"eb", [cut("lookup", "{\"word\": \"eb")]),
        // No call: not at the beginning, no tool, no arguments, or another object.
        case("llama", &format!("So: {object}"), [content(&format!("So: {object}"))]),
        case(
            "llama",
            "{\"name\": \"Alice\", \"parameters\": {}}",
            [content("{\"name\": \"Alice\", \"parameters\": {}}")],
        ),
        case("llama", "{\"name\": \"lookup\"}", [content("{\"name\": \"lookup\"}")]),
        case("llama", "{\"answer\": {\"name\": \"lookup\"}}", [content("{\"answer\": {\"name\": \"lookup\"}}")]),
        case("llama", "{\"name\": \"look", [content("{\"name\": \"look")]),
        case("llama", "{ x }", [content("{ x }")]),
        case("llama", "<|python_tag|>print(1)", [content("<|python_tag|>print(1)")]),
    ]
}

fn distilled() -> Vec<Case> {
    let one = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n```json\n{\"word\": \"ebb\"}\n```<｜tool▁call▁end｜>";
    let block = format!("<｜tool▁calls▁begin｜>{one}\n{one}<｜tool▁calls▁end｜>");
    let told = call("lookup", "{\"word\": \"ebb\"}");
    let mut cases = Vec::new();
    for format in ["llama-distilled", "qwen2-distilled"] {
        cases.extend([
            behind(format, "<think>\n", "Hm.\n</think>\n\nYes.", [reasoning("Hm."), content("Yes.")]),
            behind(
                format,
                "<think>\n",
                &format!("Hm.\n</think>\n\n{block}"),
                [reasoning("Hm."), told.clone(), told.clone()],
            ),
            case(format, &format!("<think>\nHm.\n</think>{one}"), [reasoning("Hm."), told.clone()]),
            case(
                format,
                "<tool_call>\n{\"name\": \"lookup\", \"arguments\": {}}\n</tool_call>",
                [call("lookup", "{}")],
            ),
            case(
                format,
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n{\"word\": 1}",
                [call("lookup", "{\"word\": 1}")],
            ),
            case(format, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n```json\n{\"wo", [cut("lookup", "{\"wo")]),
            case(format, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>loo", []),
        ]);
    }
    cases
}
