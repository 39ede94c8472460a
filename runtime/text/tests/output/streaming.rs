//! What comes when: nothing is held back that may be shown, and nothing of a mark is shown.

use bantam_text::Piece;

use crate::formats::format;
use crate::support::{split, tools};

/// A text of 4 kB that has everything in it that readers look for.
fn body() -> String {
    "fn main() { println!(\"it's <b> & [x](y), {}\\n\", 1); } // é😀\n".repeat(64)
}

/// How each syntax writes a call with this text, up to what ends it, and from there on.
fn long_calls() -> Vec<(&'static str, String, String)> {
    let body = body();
    let json = serde_json::to_string(&body).unwrap();
    let (json, python) = (json.trim_matches('"').to_owned(), json.trim_matches('"').replace('\'', "\\'"));
    vec![
        (
            "qwen3",
            format!("<tool_call>\n{{\"name\": \"lookup\", \"arguments\": {{\"word\": \"{json}"),
            "\"}}\n</tool_call>".into(),
        ),
        ("llama", format!("{{\"name\": \"lookup\", \"parameters\": {{\"word\": \"{json}"), "\"}}".into()),
        (
            "qwen35",
            format!("<tool_call>\n<function=lookup>\n<parameter=word>\n{body}"),
            "\n</parameter>\n</function>\n</tool_call>".into(),
        ),
        (
            "nemotron",
            format!("<tool_call>\n<function=lookup>\n<parameter=word>\n{body}"),
            "\n</parameter>\n</function>\n</tool_call>".into(),
        ),
        (
            "ling",
            format!("<tool_call>lookup\n<arg_key>word</arg_key>\n<arg_value>{body}"),
            "</arg_value>\n</tool_call>".into(),
        ),
        (
            "laguna",
            format!("<tool_call>lookup<arg_key>word</arg_key><arg_value>{body}"),
            "</arg_value></tool_call>".into(),
        ),
        (
            "k2-horizon",
            format!("<ifm|tool_calls>\n<ifm|tool_call>lookup\n<ifm|arg_key>word</ifm|arg_key>\n<ifm|arg_value>{body}"),
            "</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>".into(),
        ),
        (
            "muse-glimmer",
            format!(
                " to=lookup<|message|><atem:function_calls>\n<atem:invoke name=\"lookup\">\n<atem:parameter name=\"word\">{body}"
            ),
            "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>".into(),
        ),
        (
            "deepseek4",
            format!(
                "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"lookup\">\n<｜DSML｜parameter name=\"word\" string=\"true\">{body}"
            ),
            "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>".into(),
        ),
        ("gemma4", format!("<|tool_call>call:lookup{{word:<|\"|>{body}"), "<|\"|>}<tool_call|>".into()),
        ("lfm2", format!("<|tool_call_start|>[lookup(word='{python}"), "')]<|tool_call_end|>".into()),
        (
            "qwen2-distilled",
            format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n```json\n{{\"word\": \"{json}"
            ),
            "\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>".into(),
        ),
    ]
}

#[test]
fn long_arguments_come_as_they_are_written() {
    for (name, begun, rest) in long_calls() {
        let mut splitter = format(name).splitter(&tools(), "");
        let mut arguments = String::new();
        let mut lag = 0;
        let mut gather = |pieces: Vec<Piece>| {
            for piece in pieces {
                match piece {
                    Piece::Arguments { json, .. } => arguments.push_str(&json),
                    Piece::Call { name, .. } => assert_eq!(name, "lookup"),
                    Piece::CallEnd { .. } => {}
                    other => panic!("{name}: {other:?}"),
                }
            }
            arguments.len()
        };
        for (at, c) in begun.char_indices() {
            let told = gather(splitter.push(&begun[at..at + c.len_utf8()]));
            if told > 0 {
                lag = lag.max(at.saturating_sub(told));
            }
        }
        assert!(splitter.is_call());
        // What lags behind is the call's head, what JSON escapes is longer, and marks are shorter than this.
        assert!(lag < 200, "{name}: {lag} bytes were held back");
        gather(splitter.push(&rest));
        gather(splitter.finish());
        assert!(!splitter.is_call());
        let read: serde_json::Value = serde_json::from_str(&arguments).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(read["word"], serde_json::Value::String(body()), "{name}");
    }
}

#[test]
fn an_answer_is_shown_at_once_but_for_what_may_begin_a_mark() {
    for (name, held) in [("qwen2", "<tool"), ("deepseek4", "<｜DS"), ("gemma4", "<|tool"), ("lfm2", "<|tool_call_s")] {
        let mut splitter = format(name).splitter(&tools(), "");
        assert_eq!(splitter.push("Hello"), [Piece::Content("Hello".into())], "{name}");
        assert_eq!(splitter.push(" you"), [Piece::Content(" you".into())], "{name}");
        assert_eq!(splitter.push(held), [], "{name}");
        assert_eq!(splitter.push("!"), [Piece::Content(format!("{held}!"))], "{name}");
    }
    let mut splitter = format("qwen2").splitter(&[], "");
    assert_eq!(splitter.push("<tool_call> "), [Piece::Content("<tool_call> ".into())], "nothing is called");
}

#[test]
fn the_splitter_says_where_it_is() {
    let mut splitter = format("qwen3").splitter(&tools(), "<think>\n");
    assert!(splitter.is_reasoning() && !splitter.is_call());
    splitter.push("Hm.<tool_call>{");
    assert!(splitter.is_reasoning() && !splitter.is_call());
    splitter.push("\"name\": \"lookup\"");
    assert!(!splitter.is_reasoning() && splitter.is_call());
    splitter.push("}</tool_call>");
    assert!(!splitter.is_reasoning() && !splitter.is_call());
}

#[test]
fn without_tools_calls_are_text() {
    for (name, begun, rest) in long_calls().into_iter().filter(|(name, ..)| *name != "muse-glimmer") {
        let output = format!("{begun}{rest}");
        let shown = split(format(name), &[], "", [output.as_str()]);
        assert_eq!(shown, [crate::support::content(&output)], "{name}");
    }
}

#[test]
fn endless_white_space_and_marks_take_linear_time() {
    let begin = std::time::Instant::now();
    for name in ["llama", "qwen3", "nemotron", "ling", "gemma4", "lfm2"] {
        for text in ["\n", "<tool_call>", "<tool_call>{\"a\":", "<", "[a", "`", "<|tool_call_start|>f('"] {
            let mut splitter = format(name).splitter(&tools(), "");
            for _ in 0..100_000 {
                splitter.push(text);
            }
            splitter.finish();
        }
    }
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}
