//! Calls between tags that hold the names: Qwen3-Coder and later, Nemotron, DeepSeek, Muse.

use crate::support::{Case, behind, call, case, content, cut, reasoning};

pub(super) fn cases() -> Vec<Case> {
    [functions(), lenient_functions(), deepseek(), muse()].concat()
}

fn function(parameters: &[(&str, &str)]) -> String {
    let parameter = |(key, value): &(&str, &str)| format!("<parameter={key}>\n{value}\n</parameter>\n");
    let parameters: String = parameters.iter().map(parameter).collect();
    format!("<tool_call>\n<function=write_note>\n{parameters}</function>\n</tool_call>")
}

fn functions() -> Vec<Case> {
    let note = function(&[("title", "Plan"), ("lines", "[\"a\", \"b\"]")]);
    let told = call("write_note", "{\"title\":\"Plan\",\"lines\":[\"a\", \"b\"]}");
    let value = |key: &str, text: &str, json: &str| {
        case("qwen35", &function(&[(key, text)]), [call("write_note", &format!("{{\"{key}\":{json}}}"))])
    };
    let mut cases = vec![
        // An argument that only looks like the end of another, or of the call.
        value("title", "a\n</parameter>\nb", "\"a\\n</parameter>\\nb\""),
        value("title", "a\n</function>\n</tool_call>\nb", "\"a\\n</function>\\n</tool_call>\\nb\""),
        value("title", "<parameter=color>\n1", "\"<parameter=color>\\n1\""),
        value("title", "\n two lines \n", "\"\\n two lines \\n\""),
        value("title", "", "\"\""),
        value("title", "12", "\"12\""),
        value("title", "\"q\" \\ <b>é😀</b>", "\"\\\"q\\\" \\\\ <b>é😀</b>\""),
        value("lines", "a, b", "\"a, b\""),
        value("lines", "[\"a\", ", "\"[\\\"a\\\", \""),
        value("mode", "None", "null"),
        value("mode", "7", "7"),
        value("mode", "seven", "\"seven\""),
        value("anything", "{\"a\": 1}", "\"{\\\"a\\\": 1}\""),
        value("unheard", "1", "\"1\""),
    ];
    for format in ["qwen35", "qwen4exp", "nemotron", "qwen3-coder", "qwen3"] {
        cases.extend([
            case(format, &note, [told.clone()]),
            case(format, &format!("I write.\n\n{note}\n{note}"), [content("I write."), told.clone(), told.clone()]),
            case(format, &format!("{note}\n\nDone."), [told.clone(), content("Done.")]),
            case(format, "<tool_call>\n<function=list_files>\n</function>\n</tool_call>", [call("list_files", "{}")]),
            case(format, "<tool_call><function=list_files></function></tool_call>", [call("list_files", "{}")]),
            case(format, "<tool_call>\n<function=fly>\n</function>\n</tool_call>", [call("fly", "{}")]),
        ]);
    }
    for format in ["qwen35", "qwen4exp", "nemotron"] {
        cases.extend([
            behind(format, "<think>\n", "Hm.\n</think>\n\nYes.", [reasoning("Hm."), content("Yes.")]),
            behind(format, "<think>\n", &format!("Hm.\n\n{note}"), [reasoning("Hm."), told.clone()]),
            behind(
                format,
                "<think>\n",
                "<function=lookup> is how.\n</think>\nOk",
                [reasoning("<function=lookup> is how."), content("Ok")],
            ),
            behind(format, "<think></think>", &note, [told.clone()]),
        ]);
    }
    cases
}

fn lenient_functions() -> Vec<Case> {
    let title = call("write_note", "{\"title\":\"Plan\"}");
    let head = "<tool_call>\n<function=write_note>\n<parameter=title>\n";
    let all = call("write_note", "{\"title\":\"Plan\",\"lines\":[]}");
    vec![
        case(
            "qwen3-coder",
            "<function=write_note>\n<parameter=title>\nPlan\n</parameter>\n</function>",
            [title.clone()],
        ),
        case("qwen3-coder", "Use <function=f> there.", [content("Use <function=f> there.")]),
        case("nemotron", &format!("{head}Plan\n</function>\n</tool_call>"), [title.clone()]),
        case("nemotron", &format!("{head}Plan\n</function>"), [title.clone()]),
        case("nemotron", &format!("{head}Plan\n<parameter=lines>\n[]\n</parameter>\n</function>\n</tool_call>"), [all]),
        case("nemotron", &format!("{head}Plan\n</parameter>\n</tool_call>"), [title.clone()]),
        case("nemotron", &format!("{head}Plan\n</parameter>\n</function>\n</tool_"), [title.clone()]),
        case("nemotron", &format!("{head}Plan\n</parameter>\n"), [title.clone()]),
        case("nemotron", &format!("{head}Plan</parameter></function>Then."), [title.clone(), content("Then.")]),
        case("nemotron", &format!("{head}Plan\n</parameter>\n<param"), [cut("write_note", "{\"title\":\"Plan\"")]),
        case("nemotron", &format!("{head}Pl"), [cut("write_note", "{\"title\":\"Pl")]),
        case("nemotron", &format!("{head}Plan\n</para"), [cut("write_note", "{\"title\":\"Plan")]),
        case(
            "nemotron",
            "<tool_call>\n<function=write_note>\n<parameter=lines>\n[]\n</parameter>\n",
            [cut("write_note", "{\"lines\":[]")],
        ),
        case("nemotron", "<tool_call>\n<function=write_no", []),
        case("nemotron", "<tool_call>\n<function=two words>", [content("<tool_call>\n<function=two words>")]),
        case("nemotron", "<tool_call>\n<function=f>\nfoo", [content("<tool_call>\n<function=f>\nfoo")]),
    ]
}

fn deepseek() -> Vec<Case> {
    let invoke = "<｜DSML｜invoke name=\"lookup\">\n\
        <｜DSML｜parameter name=\"word\" string=\"true\">ebb</｜DSML｜parameter>\n\
        <｜DSML｜parameter name=\"limit\" string=\"false\">2</｜DSML｜parameter>\n\
        </｜DSML｜invoke>\n";
    let none = "<｜DSML｜invoke name=\"list_files\">\n\n</｜DSML｜invoke>\n";
    let block = |calls: &str| format!("\n\n<｜DSML｜tool_calls>\n{calls}</｜DSML｜tool_calls>");
    let told = call("lookup", "{\"word\":\"ebb\",\"limit\":2}");
    let value = |string: &str, text: &str, json: &str| {
        let parameter = format!("<｜DSML｜parameter name=\"limit\" string=\"{string}\">{text}</｜DSML｜parameter>\n");
        let calls = format!("<｜DSML｜invoke name=\"lookup\">\n{parameter}</｜DSML｜invoke>\n");
        case("deepseek4", &block(&calls), [call("lookup", &format!("{{\"limit\":{json}}}"))])
    };
    vec![
        case("deepseek4", "Hello < world", [content("Hello < world")]),
        behind("deepseek4", "</think>", "Hello", [content("Hello")]),
        behind("deepseek4", "<think>", "Hm.</think>Yes.", [reasoning("Hm."), content("Yes.")]),
        behind("deepseek4", "<think>", &format!("Hm.</think>{}", block(invoke)), [reasoning("Hm."), told.clone()]),
        behind("deepseek4", "<think>", &format!("Hm.{}", block(invoke)), [reasoning("Hm."), told.clone()]),
        behind(
            "deepseek4",
            "<think>",
            "Quote <｜DSML｜tool_calls> so.</think>Yes.",
            [reasoning("Quote <｜DSML｜tool_calls> so."), content("Yes.")],
        ),
        case(
            "deepseek4",
            &format!("I look.{}", block(&format!("{invoke}{none}{invoke}"))),
            [content("I look."), told.clone(), call("list_files", "{}"), told.clone()],
        ),
        case("deepseek4", &block(invoke).replace("tool_calls", "function_calls"), [told.clone()]),
        case("deepseek4", invoke, [told.clone()]),
        case("deepseek4", block(invoke).trim_end_matches("tool_calls>"), [told.clone()]),
        value("true", " 12\n", "\" 12\\n\""),
        value("false", "[1, {\"a\": null}]", "[1, {\"a\": null}]"),
        value("false", "2 days", "\"2 days\""),
        case("deepseek4", "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"look", []),
        case("deepseek4", "Well\n\n<｜DSML｜tool_", [content("Well")]),
    ]
}

fn muse() -> Vec<Case> {
    let block = "<atem:function_calls>\n<atem:invoke name=\"get.weather\">\n\
        <atem:parameter name=\"city\">Paris</atem:parameter>\n\
        <atem:parameter name=\"days\">[1, 2]</atem:parameter>\n\
        </atem:invoke>\n</atem:function_calls>";
    let told = call("get.weather", "{\"city\":\"Paris\",\"days\":[1, 2]}");
    let to = |name: &str, text: &str| format!(" to={name}<|message|>{text}");
    let next = "<|eom|><|start|>assistant";
    let thought = to("self", &format!("Hm.{next}"));
    let glued = "<atem:function_calls>\n<atem:invoke name=\"list_files.path\">a b</atem:parameter>\n</atem:invoke>\n</atem:function_calls>";
    vec![
        case("muse-glimmer", &to("user", "Hello."), [content("Hello.")]),
        case("muse-glimmer", "<|message|>Hello.", [content("Hello.")]),
        case("muse-glimmer", &format!("{thought}{}", to("user", "Hello.")), [reasoning("Hm."), content("Hello.")]),
        case("muse-glimmer", &to("get.weather", block), [told.clone()]),
        case(
            "muse-glimmer",
            &format!("{thought}{}{next}{}", to("get.weather", block), to("get.weather", block)),
            [reasoning("Hm."), told.clone(), told.clone()],
        ),
        case(
            "muse-glimmer",
            &format!("{}{next}{}", to("user", "I look."), to("get.weather", block)),
            [content("I look."), told.clone()],
        ),
        case(
            "muse-glimmer",
            &format!("{thought}{thought}{}", to("user", "So.")),
            [reasoning("Hm.Hm."), content("So.")],
        ),
        // Calls that are quoted in a thought or an answer.
        case("muse-glimmer", &to("self", &format!("{block}{next}")), [reasoning(block)]),
        case("muse-glimmer", &to("user", block), [content(block)]),
        case("muse-glimmer", block, [told]),
        case("muse-glimmer", &to("list_files", glued), [call("list_files", "{\"path\":\"a b\"}")]),
        case("muse-glimmer", &to("user", "to=me, to=you"), [content("to=me, to=you")]),
        case("muse-glimmer", &to("user", "Hello.<|eo"), [content("Hello.")]),
        case("muse-glimmer", " to=us", []),
        case("muse-glimmer", " to whom?", [content(" to whom?")]),
        case("muse-glimmer", &to("get.weather", &block[..70]), []),
        case("muse-glimmer", &to("get.weather", &block[..90]), [cut("get.weather", "{\"city\":\"Paris")]),
    ]
}
