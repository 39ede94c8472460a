//! What holds for any output in any chunks.

use bantam_text::Turn;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::cases;
use crate::formats::{format, formats};
use crate::support::{split, tools};

/// Texts to put into outputs: parts of marks, and what upsets readers.
const SPLINTERS: [&str; 40] = [
    "<",
    ">",
    "\"",
    "'",
    "\\",
    "`",
    "```",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ",",
    "=",
    "\n",
    " ",
    "é",
    "😀",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "<parameter=",
    "</parameter>",
    "</function>",
    "<arg_key>",
    "</arg_value>",
    "<｜DSML｜",
    "<|tool_call>call:",
    "<|\"|>",
    "<tool_call|>",
    "<|eom|>",
    " to=user<|message|>",
    "<|tool_call_start|>[",
    "<ifm|tool_calls>",
    "</ifm|think>",
    "{\"name\": \"lookup\", \"arguments\": {",
];

/// The format of a recorded output, the end of its prompt, and the output.
fn any_case() -> impl Strategy<Value = (&'static str, &'static str, String)> {
    any::<Index>().prop_map(|index| {
        let mut cases = cases::all();
        let case = cases.swap_remove(index.index(cases.len()));
        (case.format, case.prompt, case.output)
    })
}

/// Prose and code that no format has marks in.
fn any_words() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9.,;!?*_#&~$%@^+= \\n\\t\u{e9}\u{4e2d}\u{1f600}-]{1,20}"
}

/// Markup of other models, and of none.
fn any_markup() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "<html>",
        "</p>",
        "<a href=\"x\">",
        "<tool>",
        "<thinking>",
        "</answer>",
        "[TOOL_CALLS]",
        "<|im_sep|>",
        "a < b",
        "<function>",
        "<tool_code>",
        "{\"name\": \"lookup\"}",
        "<<",
        "<|",
        "|>",
        "[f(x)]",
        "`<b>`",
    ]);
    prop_oneof![known.prop_map(str::to_owned), "[ a-z]{1,6}", "</?[a-z]{1,8}>"]
}

/// Changes a text: cuts out, puts in, doubles, ends early.
fn mutate(text: &str, changes: &[(u8, Index, Index)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (kind, at, other) in changes {
        let (at, other) = (at.index(chars.len() + 1), other.index(chars.len() + 1));
        let (from, to) = (at.min(other), at.max(other));
        match kind % 4 {
            0 => drop(chars.drain(from..to.min(from + 12))),
            1 => drop(chars.splice(at..at, SPLINTERS[other % SPLINTERS.len()].chars())),
            2 => {
                let copy: Vec<char> = chars[from..to].iter().copied().take(200).collect();
                drop(chars.splice(at..at, copy));
            }
            _ if from > chars.len() / 2 => chars.truncate(from),
            _ => {}
        }
    }
    chars.into_iter().collect()
}

/// Cuts a text after these characters.
fn chunks<'t>(text: &'t str, cuts: &[Index]) -> Vec<&'t str> {
    let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| bounds[cut.index(bounds.len())]).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()])
}

proptest! {
    #[test]
    fn chunks_make_no_difference(
        (name, prompt, output) in any_case(),
        changes in prop::collection::vec(any::<(u8, Index, Index)>(), 0..4),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
        with_tools in prop::bool::weighted(0.9),
    ) {
        let (format, output) = (format(name), mutate(&output, &changes));
        let tools = if with_tools { tools() } else { Vec::new() };
        let whole = split(format, &tools, prompt, [output.as_str()]);
        prop_assert_eq!(&split(format, &tools, prompt, chunks(&output, &cuts)), &whole, "{:?}", output);
        prop_assert_eq!(&split(format, &tools, prompt, characters(&output)), &whole, "{:?}", output);
    }

    #[test]
    fn splinters_of_marks_in_any_order_break_nothing(
        splinters in prop::collection::vec(prop::sample::select(&SPLINTERS[..]), 0..24),
    ) {
        let output = splinters.concat();
        for format in formats() {
            let whole = split(format, &tools(), "", [output.as_str()]);
            prop_assert_eq!(split(format, &tools(), "", characters(&output)), whole, "{:?}", output);
        }
    }

    #[test]
    fn arguments_are_json_whatever_a_model_writes_that_is_none(
        (name, prompt, output) in any_case(),
        changes in prop::collection::vec(any::<(u8, Index, Index)>(), 0..4),
    ) {
        let output = mutate(&output, &changes);
        // Where a model writes JSON itself it is passed on as it is.
        let is_ours = !["\"name\"", "<｜tool▁"].iter().any(|mark| output.contains(mark));
        let turn = Turn { parts: split(format(name), &tools(), prompt, [output.as_str()]) };
        for call in turn.calls().filter(|call| call.complete && is_ours) {
            let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&call.arguments);
            prop_assert!(read.is_ok(), "{call:?} of {output:?}");
        }
    }

    #[test]
    fn an_answer_without_marks_stays_as_it_is(parts in prop::collection::vec(any_words(), 0..12)) {
        let answer = parts.concat();
        for format in formats() {
            let turn = Turn { parts: split(format, &tools(), "", parts.iter().map(String::as_str)) };
            prop_assert_eq!(turn.content(), answer.as_str());
        }
    }

    #[test]
    fn unknown_markup_is_kept_to_the_byte(words in prop::collection::vec(any_markup(), 1..12)) {
        let answer = format!("So: {}.", words.concat());
        for format in formats() {
            let turn = Turn { parts: split(format, &tools(), "", characters(&answer)) };
            prop_assert_eq!(turn.content(), answer.as_str());
        }
    }
}
