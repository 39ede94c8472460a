//! Calls whose arguments are written in a language of their own: Gemma 4, LFM2.

use crate::support::{Case, behind, call, case, content, cut, reasoning};

pub(super) fn cases() -> Vec<Case> {
    [gemma(), python(), lenient_python()].concat()
}

fn gemma() -> Vec<Case> {
    let arguments = |braced: &str, json: &str| {
        case("gemma4", &format!("<|tool_call>call:set_alarm{braced}<tool_call|>"), [call("set_alarm", json)])
    };
    let one = "<|tool_call>call:lookup{word:<|\"|>ebb<|\"|>}<tool_call|>";
    let told = call("lookup", "{\"word\":\"ebb\"}");
    vec![
        case("gemma4", "Plain.", [content("Plain.")]),
        case("gemma4", "<|channel>thought\nHm.\n<channel|>Yes.", [reasoning("Hm."), content("Yes.")]),
        case("gemma4", "<|channel>thought\n<channel|>Yes.<channel|>", [content("Yes.")]),
        case("gemma4", "<|channel>Yes.", [content("Yes.")]),
        behind("gemma4", "<|channel>thought\n<channel|>", "Yes.", [content("Yes.")]),
        case("gemma4", &format!("I look.{one}{one}"), [content("I look."), told.clone(), told.clone()]),
        case("gemma4", &format!("<|channel>thought\nHm.{one}"), [reasoning("Hm."), told.clone()]),
        case(
            "gemma4",
            "<|channel>thought\n<|tool_call>call:f{} is how.<channel|>",
            [reasoning("<|tool_call>call:f{} is how.")],
        ),
        arguments(
            "{at:<|\"|>07:30<|\"|>,days:[<|\"|>mon<|\"|>,<|\"|>tue<|\"|>],loud:true}",
            "{\"at\":\"07:30\",\"days\":[\"mon\",\"tue\"],\"loud\":true}",
        ),
        arguments("{}", "{}"),
        arguments("{ n : -1.5e3 , o:{k:null, l:[]} }", "{\"n\":-1.5e3,\"o\":{\"k\":null,\"l\":[]}}"),
        arguments("{t:<|\"|>a \"b\"\n{c}, <d|>\\<|\"|>}", "{\"t\":\"a \\\"b\\\"\\n{c}, <d|>\\\\\"}"),
        arguments("{at:07:30,t:hi there}", "{\"at\":\"07:30\",\"t\":\"hi there\"}"),
        arguments("{<|\"|>a<|\"|>:\"b, \\\"c\\\"\"}", "{\"a\":\"b, \\\"c\\\"\"}"),
        arguments("{a:,b}", "{\"a\":null,\"b\":null}"),
        case("gemma4", "<|tool_call>call:f{a:[1,2}<tool_call|>Hm.", [cut("f", "{\"a\":[1,2]"), content("Hm.")]),
        case("gemma4", "<|tool_call>call:lookup{word:<|\"|>eb", [cut("lookup", "{\"word\":\"eb")]),
        case("gemma4", "<|tool_call>call:f{a:x<y, b<tool_call|>Hm.", [cut("f", "{\"a\":\"x<y\""), content("Hm.")]),
        case("gemma4", "<|tool_call>call:look", []),
        case("gemma4", "<|tool_call>maybe", [content("<|tool_call>maybe")]),
    ]
}

fn python() -> Vec<Case> {
    let list = |calls: &str| format!("<|tool_call_start|>[{calls}]<|tool_call_end|>");
    let arguments = |python: &str, json: &str| case("lfm2", &list(&format!("f({python})")), [call("f", json)]);
    vec![
        case("lfm2", "<think>\nHm.\n</think>\n\nYes.", [reasoning("Hm."), content("Yes.")]),
        behind("lfm2", "<think>", "Hm.</think>Yes.", [reasoning("Hm."), content("Yes.")]),
        case(
            "lfm2",
            &list("find_train(origin='Bern', via=['Olten'], first_class=True), set_alarm(minutes=12)"),
            [
                call("find_train", "{\"origin\":\"Bern\",\"via\":[\"Olten\"],\"first_class\":true}"),
                call("set_alarm", "{\"minutes\":12}"),
            ],
        ),
        case(
            "lfm2",
            &format!("I look. {} Done.", list("lookup(word=\"ebb\")")),
            [content("I look."), call("lookup", "{\"word\":\"ebb\"}"), content("Done.")],
        ),
        arguments("", "{}"),
        arguments(" a = None , b=-1.5 ", "{\"a\":null,\"b\":-1.5}"),
        arguments("o={'k': True, \"l\": [1, {}]}", "{\"o\":{\"k\":true,\"l\":[1,{}]}}"),
        arguments(r#"t='\'a\'\n\u00e9\t\\ "b"'"#, r#"{"t":"'a'\né\t\\ \"b\""}"#),
        arguments("t='it's, well, \"so\"', n=1", "{\"t\":\"it's, well, \\\"so\\\"\",\"n\":1}"),
        arguments("t='a\nb'", "{\"t\":\"a\\nb\"}"),
        arguments("t=''", "{\"t\":\"\"}"),
    ]
}

fn lenient_python() -> Vec<Case> {
    let told = call("lookup", "{\"word\":\"ebb\"}");
    vec![
        case("lfm2", "<|tool_call_start|>lookup(word='ebb')<|tool_call_end|>", [told.clone()]),
        case(
            "lfm2",
            "<|tool_call_start|>[get.weather(city='Rome')]<|tool_call_end|>",
            [call("get.weather", "{\"city\":\"Rome\"}")],
        ),
        case(
            "lfm2",
            "<|tool_call_start|>[{\"name\": \"lookup\", \"arguments\": {\"word\": \"ebb\"}}]<|tool_call_end|>",
            [call("lookup", "{\"word\": \"ebb\"}")],
        ),
        // Without its marks a list counts on a line of its own, if it names a tool.
        case("lfm2", "[lookup(word='ebb')]", [told.clone()]),
        case("lfm2", "So:\n[lookup(word='ebb')]\nDone.", [content("So:"), told.clone(), content("Done.")]),
        case("lfm2", "So: [lookup(word='ebb')]", [content("So: [lookup(word='ebb')]")]),
        case("lfm2", "[look](it) [1], [f(x=1)]", [content("[look](it) [1], [f(x=1)]")]),
        case("lfm2", "[f(x=1)]", [content("[f(x=1)]")]),
        case("lfm2", "[look", [content("[look")]),
        case("lfm2", "<|tool_call_start|>[lookup(word='ebb'), look", [told.clone()]),
        case("lfm2", "[lookup(word='ebb'), look", [told.clone()]),
        case("lfm2", "[lookup(word='ebb'), and] so on", [told.clone(), content(", and] so on")]),
        case("lfm2", "<|tool_call_start|>[lookup(word='eb", [cut("lookup", "{\"word\":\"eb")]),
        case(
            "lfm2",
            "<|tool_call_start|>[lookup(word='eb<|tool_call_end|>Hm.",
            [cut("lookup", "{\"word\":\"eb"), content("Hm.")],
        ),
        case(
            "lfm2",
            "<|tool_call_start|>nothing<|tool_call_end|>",
            [content("<|tool_call_start|>nothing<|tool_call_end|>")],
        ),
        behind(
            "lfm2",
            "<think>",
            "[lookup(word='a')] is how.</think>Yes.",
            [reasoning("[lookup(word='a')] is how."), content("Yes.")],
        ),
        behind(
            "lfm2",
            "<think>",
            "Hm.\n<|tool_call_start|>[lookup(word='ebb')]<|tool_call_end|>",
            [reasoning("Hm."), told],
        ),
    ]
}
