//! `bantam transcript-audit`: why edits failed in a coding harness.

mod conversation;
mod verdict;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::{error::CliError, output};
use conversation::{Event, events};
use verdict::{Verdict, judge};

/// Say why edits failed: read what a server left in BANTAM_TRANSCRIPT_DUMP
///
/// An edit names the text that it replaces. Of each that a harness refused this tells whether the model had ever been shown
/// that text, and whether what the client sent of it was lost on the way into the prompt.
#[derive(Debug, Args)]
pub(crate) struct TranscriptAuditArgs {
    /// Directory with transcripts
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
struct Audit {
    transcripts: usize,
    /// Files that are none.
    skipped: Vec<String>,
    edits: usize,
    failed: Vec<FailedEdit>,
}

/// An edit that a harness refused.
#[derive(Debug, Serialize)]
struct FailedEdit {
    /// The transcript that has it first.
    file: String,
    tool: String,
    verdict: Verdict,
    /// The beginning of what was to be replaced.
    text: String,
    /// The beginning of what the harness said.
    refusal: String,
}

/// Characters of a text that are shown.
const SHOWN: usize = 100;

/// Runs the command.
pub(crate) fn run(args: &TranscriptAuditArgs) -> Result<(), CliError> {
    let audit = audit(&args.directory)?;
    if args.json {
        return output::json(&audit);
    }
    output::text(&told(&audit))
}

fn audit(directory: &Path) -> Result<Audit, CliError> {
    let entries = fs::read_dir(directory).map_err(|e| CliError::file(directory, &e))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let (mut audit, mut known) = (Audit::default(), BTreeSet::new());
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match transcript(file) {
            Some(transcript) => {
                audit.transcripts += 1;
                add(&mut audit, &mut known, &name, &transcript);
            }
            None => audit.skipped.push(name),
        }
    }
    if audit.transcripts == 0 {
        let why = "no transcripts are there; a server started with BANTAM_TRANSCRIPT_DUMP=DIR leaves some";
        return Err(CliError::Failed(format!("{}: {why}", directory.display())));
    }
    Ok(audit)
}

fn transcript(file: &Path) -> Option<Value> {
    let value: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    value.get("request").is_some_and(Value::is_object).then_some(value)
}

/// Adds the edits of one transcript that earlier ones do not have.
fn add(audit: &mut Audit, known: &mut BTreeSet<String>, file: &str, transcript: &Value) {
    let prompts: Vec<&str> = transcript["prompts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let events = events(&transcript["request"]);
    for (index, event) in events.iter().enumerate() {
        let Event::Call { id, name, arguments } = event else { continue };
        let Some(Event::Result { text: answer, failed, .. }) =
            events.iter().skip(index).find(|event| event.answers(id))
        else {
            continue;
        };
        for old in replaced(arguments) {
            if !known.insert(format!("{id} {name} {old}")) {
                continue;
            }
            audit.edits += 1;
            if *failed || verdict::is_refusal(answer) {
                let verdict = judge(&old, events.iter().take(index), &prompts);
                let (text, refusal) = (shorten(&old), shorten(answer));
                audit.failed.push(FailedEdit { file: file.to_owned(), tool: name.clone(), verdict, text, refusal });
            }
        }
    }
}

/// Names under which tools take the text that is to be replaced.
const REPLACED: [&str; 7] = ["old_string", "old_str", "oldString", "oldText", "old_text", "search", "old_content"];

/// The texts that a call's arguments want to have replaced, however deep they lie.
fn replaced(arguments: &Value) -> Vec<String> {
    match arguments {
        Value::Object(fields) => {
            let own = |(name, value): (&String, &Value)| match value {
                Value::String(text) if REPLACED.contains(&name.as_str()) && !text.is_empty() => vec![text.clone()],
                other => replaced(other),
            };
            fields.iter().flat_map(own).collect()
        }
        Value::Array(items) => items.iter().flat_map(replaced).collect(),
        _ => Vec::new(),
    }
}

fn shorten(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
    if text.chars().count() > SHOWN { line + "…" } else { line }
}

fn told(audit: &Audit) -> String {
    let Audit { transcripts, skipped, edits, failed } = audit;
    let mut text = format!("{transcripts} transcripts, {edits} edits, {} failed\n", failed.len());
    for name in skipped {
        text += &format!("skipped {name}: not a transcript\n");
    }
    for edit in failed {
        text += &format!(
            "\n{}  {}\n  {}\n  to replace: {}\n  refused:    {}\n",
            edit.file,
            edit.tool,
            edit.verdict.words(),
            edit.text,
            edit.refusal
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Audits the transcripts of these requests, each with the prompt that its model saw.
    fn audited(requests: &[(Value, &str)]) -> Audit {
        let (mut audit, mut known) = (Audit::default(), BTreeSet::new());
        for (request, prompt) in requests {
            add(&mut audit, &mut known, "a.json", &json!({"request": request, "prompts": [prompt]}));
        }
        audit
    }

    fn openai(shown: &str, old: &str, answer: &str) -> Value {
        let call =
            json!({"id": "c", "function": {"name": "edit", "arguments": json!({"old_string": old}).to_string()}});
        json!({"messages": [
            {"role": "user", "content": [{"type": "text", "text": shown}]},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": answer},
        ]})
    }

    fn verdict(shown: &str, prompt: &str, old: &str) -> Verdict {
        let audit = audited(&[(openai(shown, old, "Error: old_string not found in file"), prompt)]);
        audit.failed.into_iter().next().unwrap().verdict
    }

    #[test]
    fn each_kind_of_failure_is_told_apart() {
        let code = "fn main() {\n    run();\n}";
        assert_eq!(verdict("no code here", "no code here", code), Verdict::Blind);
        assert_eq!(verdict(code, "something else", code), Verdict::Lost);
        assert_eq!(verdict(code, code, code), Verdict::Shown);
        assert_eq!(verdict(code, code, "fn main() {\n\trun();\n}"), Verdict::WhiteSpace);
        assert_eq!(verdict(code, code, "fn main() {\n    walk();\n}"), Verdict::Partly);
    }

    #[test]
    fn all_protocols_are_read_and_an_edit_counts_once() {
        let refusal = "String to replace not found in file.";
        let anthropic = json!({"messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "Edit", "input": {"old_string": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": true, "content": [{"type": "text", "text": refusal}]}]},
        ]});
        let responses = json!({"input": [
            {"type": "function_call", "call_id": "d", "name": "edit", "arguments": "{\"edits\": [{\"oldText\": \"y\"}]}"},
            {"type": "function_call_output", "call_id": "d", "output": refusal},
        ]});
        let audit = audited(&[(anthropic.clone(), ""), (anthropic, ""), (responses, "")]);
        assert_eq!((audit.edits, audit.failed.len()), (2, 2));
        assert!(audited(&[(openai("a", "a", "The file has been updated."), "a")]).failed.is_empty());
    }

    #[test]
    fn odd_requests_are_no_trouble() {
        for request in [
            json!({}),
            json!({"messages": 3}),
            json!({"messages": [1, {"role": 2, "content": {}, "tool_calls": [{}]}]}),
        ] {
            assert_eq!(audited(&[(request, "")]).edits, 0);
        }
    }
}
