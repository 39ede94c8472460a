//! Calls as a name and pairs of keys and values between tags: Ling, Laguna, K2-Horizon.

use crate::support::{Case, behind, call, case, content, cut, reasoning};

pub(super) fn cases() -> Vec<Case> {
    [pairs(), k2_horizon()].concat()
}

fn pairs() -> Vec<Case> {
    let tight = "<tool_call>lookup<arg_key>word</arg_key><arg_value>ebb</arg_value>\
        <arg_key>limit</arg_key><arg_value>2</arg_value></tool_call>";
    let loose = "<tool_call>lookup\n<arg_key>word</arg_key>\n<arg_value>ebb</arg_value><arg_key>limit</arg_key>\n\
        <arg_value>2</arg_value>\n</tool_call>";
    let told = call("lookup", "{\"word\":\"ebb\",\"limit\":2}");
    let head = "<tool_call>lookup\n<arg_key>word</arg_key>\n<arg_value>";
    let mut cases = Vec::new();
    for format in ["ling", "laguna"] {
        cases.extend([
            case(format, "Plain.", [content("Plain.")]),
            behind(format, "<think>", "Hm.</think>Yes.", [reasoning("Hm."), content("Yes.")]),
            behind(format, "<think>", "\nHm.\n</think>\nYes.", [reasoning("Hm."), content("Yes.")]),
            behind(
                format,
                "<think>",
                &format!("Hm.</think>So.\n{loose}"),
                [reasoning("Hm."), content("So."), told.clone()],
            ),
            behind(format, "<think>", &format!("Hm.{tight}"), [reasoning("Hm."), told.clone()]),
            behind(
                format,
                "<think>",
                "<tool_call>name</tool_call> is how.</think>",
                [reasoning("<tool_call>name</tool_call> is how.")],
            ),
            behind(
                format,
                "<think></think>",
                &format!("{tight}{loose}\n{tight}"),
                [told.clone(), told.clone(), told.clone()],
            ),
            behind(format, "</think>", "</think>\n<tool_call>list_files\n\n</tool_call>\n", [call("list_files", "{}")]),
            case(format, &format!("{loose}\nDone."), [told.clone(), content("Done.")]),
            case(format, &format!("{head} 1\n</arg_value>\n</tool_call>"), [call("lookup", "{\"word\":\" 1\\n\"}")]),
            case(
                format,
                &format!("{head}</tool_call> ends it</arg_value></tool_call>"),
                [call("lookup", "{\"word\":\"</tool_call> ends it\"}")],
            ),
            case(format, &format!("{head}ebb</tool_call>"), [call("lookup", "{\"word\":\"ebb\"}")]),
            case(
                format,
                &format!("{head}ebb<arg_key>limit</arg_key><arg_value>2</arg_value></tool_call>"),
                [told.clone()],
            ),
            case(format, &format!("{head}ebb</arg_value>"), [call("lookup", "{\"word\":\"ebb\"}")]),
            case(format, &format!("{head}ebb</arg_"), [cut("lookup", "{\"word\":\"ebb")]),
            case(
                format,
                "<tool_call>lookup<arg_key>other</arg_key><arg_value>[1]</arg_value></tool_call>",
                [call("lookup", "{\"other\":[1]}")],
            ),
            case(
                format,
                "<tool_call>lookup<arg_key>deep</arg_key><arg_value>True</arg_value></tool_call>",
                [call("lookup", "{\"deep\":true}")],
            ),
            case(format, "<tool_call> is a tag", [content("<tool_call> is a tag")]),
            case(format, "Hm <tool_call>look", [content("Hm")]),
        ]);
    }
    cases
}

fn k2_horizon() -> Vec<Case> {
    let tagged = "<ifm|tool_call>lookup\n<ifm|arg_key>word</ifm|arg_key>\n<ifm|arg_value>ebb</ifm|arg_value>\n\
        <ifm|arg_key>limit</ifm|arg_key>\n<ifm|arg_value>2</ifm|arg_value>\n</ifm|tool_call>\n";
    let typed = tagged
        .replace("word</ifm|arg_key>", "word</ifm|arg_key>\n<ifm|arg_type>string</ifm|arg_type>")
        .replace("limit</ifm|arg_key>", "limit</ifm|arg_key>\n<ifm|arg_type>integer</ifm|arg_type>");
    let json = "<ifm|tool_call>{\"name\": \"lookup\", \"arguments\": {\"word\":\"ebb\",\"limit\":2}}</ifm|tool_call>\n";
    let block = |calls: &str| format!("<ifm|tool_calls>\n{calls}</ifm|tool_calls>");
    let told = call("lookup", "{\"word\":\"ebb\",\"limit\":2}");
    let guess = |kind: &str, json: &str| {
        let pair =
            format!("<ifm|arg_key>x</ifm|arg_key><ifm|arg_type>{kind}</ifm|arg_type><ifm|arg_value>1</ifm|arg_value>");
        let calls = format!("<ifm|tool_call>lookup\n{pair}</ifm|tool_call>");
        case("k2-horizon", &block(&calls), [call("lookup", &format!("{{\"x\":{json}}}"))])
    };
    let mut cases = vec![
        behind("k2-horizon", "<ifm|think>\n</ifm|think>\n", "Yes.", [content("Yes.")]),
        behind(
            "k2-horizon",
            "<ifm|think>\n",
            "Hm </ifm|think_fast>\n</ifm|think>\nYes.",
            [reasoning("Hm </ifm|think_fast>"), content("Yes.")],
        ),
        behind("k2-horizon", "<ifm|think>\n", &format!("Hm.\n{}", block(tagged)), [reasoning("Hm."), told.clone()]),
        case(
            "k2-horizon",
            "So.\n<ifm|think_fast>\nHm.\n</ifm|think_fast>\nYes.",
            [content("So."), reasoning("Hm."), content("Yes.")],
        ),
        case(
            "k2-horizon",
            &format!("I look.\n{}", block(&format!("{tagged}{json}{typed}"))),
            [content("I look."), told.clone(), told.clone(), told.clone()],
        ),
        case("k2-horizon", &block("<ifm|tool_call>list_files\n</ifm|tool_call>\n"), [call("list_files", "{}")]),
        case("k2-horizon", tagged, [told.clone()]),
        case("k2-horizon", &block(tagged).replace("</ifm|tool_calls>", ""), [told]),
        case("k2-horizon", "<ifm|tool_calls>\n<ifm|tool_call>look", []),
        guess("string", "\"1\""),
        guess("integer", "1"),
        guess("thing", "1"),
    ];
    for effort in ["think", "think_fast", "think_faster"] {
        let output = format!("<ifm|{effort}>\nHm.\n</ifm|{effort}>\nYes.");
        cases.push(case("k2-horizon", &output, [reasoning("Hm."), content("Yes.")]));
    }
    cases
}
