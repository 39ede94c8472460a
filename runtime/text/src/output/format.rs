//! Which marks hold for a loaded model.

use std::sync::Arc;

use bantam_family_api::{
    CallSyntax, ChatFormat, JsonCalls, LarkCalls, MessageHeader, NamedCalls, Reasoning, TaggedCalls,
};

use super::marks::Marks;
use super::splitter::Splitter;
use super::syntax::Syntax;
use super::tools::Tool;

/// How a loaded model marks the parts of its turns: the family's format, and what the checkpoint's template says of it.
#[derive(Clone, Debug)]
pub struct OutputFormat {
    calls: Vec<CallSyntax>,
    stop_texts: Vec<String>,
    /// All texts of marks, as they are spelled.
    spelled: Vec<String>,
    marks: Arc<Marks>,
    header: Option<(Vec<String>, MessageHeader)>,
}

impl OutputFormat {
    /// The format of a model of a family with this chat format. `template`: the source of the checkpoint's template;
    /// `template_knows_tools`: whether it tells the model of tools. Where it does not, the model has to be told in the
    /// prompt, and calls as it is told there: as Hermes models do.
    pub fn new(chat: &ChatFormat, template: Option<&str>, template_knows_tools: bool) -> Self {
        let calls = calls(&chat.calls, template.unwrap_or_default(), template_knows_tools);
        let (calls, syntaxes): (Vec<_>, Vec<_>) = calls.into_iter().filter_map(ready).unzip();
        let reasoning = reasoning(&chat.reasoning, template);
        let spelled = reasoning.iter().flat_map(|pair| [pair.open.clone(), pair.close.clone()]);
        let header = chat.header.iter().flat_map(|header| [header.before.clone(), header.behind.clone()]);
        let spelled = spelled.chain(header).chain(chat.hidden.iter().cloned());
        let spelled = spelled.chain(calls.iter().flat_map(texts).map(str::to_owned)).collect();
        let marks = Arc::new(Marks::new(reasoning, syntaxes, chat.header.clone(), &chat.hidden));
        let header = chat.header.clone().map(|header| {
            let between = chat.hidden.iter().filter(|text| **text != header.behind).cloned().collect();
            (between, header)
        });
        Self { calls, stop_texts: chat.stop_texts.clone(), spelled, marks, header }
    }

    /// Where a turn is several messages, how each begins: the texts that may stand between two of them, and the header.
    pub fn header(&self) -> Option<&(Vec<String>, MessageHeader)> {
        self.header.as_ref()
    }

    /// How calls may be written, first as the template shows it.
    pub fn calls(&self) -> &[CallSyntax] {
        &self.calls
    }

    /// What encloses reasoning. None: the model does not reason.
    pub fn reasoning(&self) -> &[Reasoning] {
        &self.marks.reasoning
    }

    /// Texts that end a turn however they are put together of tokens.
    pub fn stop_texts(&self) -> &[String] {
        &self.stop_texts
    }

    /// Whether a control token with this spelling is a mark, or part of one. A splitter has to see it; other control tokens
    /// are no text of the turn.
    pub fn is_mark(&self, spelling: &str) -> bool {
        !spelling.is_empty() && self.spelled.iter().any(|text| text.contains(spelling))
    }

    /// A splitter for one turn. `tools`: those that the request declares; without any nothing is a call. `prompt`: what the
    /// turn continues, or its end; behind an opening mark of reasoning the turn begins inside of it.
    pub fn splitter(&self, tools: &[Tool], prompt: &str) -> Splitter {
        Splitter::new(Arc::clone(&self.marks), tools, prompt)
    }
}

/// A family's pairs that the template has one mark of. A template may have some that its family does not: distilled models
/// took the usual ones from their teachers.
fn reasoning(family: &[Reasoning], template: Option<&str>) -> Vec<Reasoning> {
    let Some(template) = template else { return family.to_vec() };
    let usual = Reasoning { open: "<think>".to_owned(), close: "</think>".to_owned(), ended_by_calls: true };
    let unknown = Some(&usual).filter(|usual| !family.contains(usual));
    let is_unmistakable = |pair: &Reasoning| pair.open.contains('|');
    let is_in = |mark: &str| template.contains(mark.trim_ascii());
    let pairs = family.iter().chain(unknown);
    pairs.filter(|pair| is_unmistakable(pair) || is_in(&pair.open) || is_in(&pair.close)).cloned().collect()
}

/// A family's syntaxes, those first that the template has. One that its family does not know counts before these, unless
/// the template has one of theirs too.
fn calls(family: &[CallSyntax], template: &str, template_knows_tools: bool) -> Vec<CallSyntax> {
    let (mut known, other): (Vec<CallSyntax>, Vec<CallSyntax>) =
        family.iter().cloned().partition(|calls| is_shown(calls, template));
    let foreign =
        [hermes(), listed(), fenced()].into_iter().filter(|calls| is_shown(calls, template) && !family.contains(calls));
    if !template_knows_tools {
        let taught = foreign.filter(|calls| *calls != hermes());
        return std::iter::once(hermes()).chain(taught).collect();
    }
    let is_marked = |calls: &CallSyntax| !texts(calls).first().is_none_or(|open| open.is_empty());
    let at = if known.iter().any(is_marked) { known.len() } else { 0 };
    known.splice(at..at, foreign);
    known.extend(other);
    known
}

/// A syntax that can be read. Calls in another stay text.
fn ready(calls: CallSyntax) -> Option<(CallSyntax, Syntax)> {
    match Syntax::new(&calls) {
        Ok(syntax) => Some((calls, syntax)),
        Err(why) => {
            let begins = texts(&calls).first().copied().unwrap_or_default();
            tracing::warn!("calls of tools that begin with `{begins}` stay text: {why}");
            None
        }
    }
}

/// Whether a template writes calls like this.
fn is_shown(calls: &CallSyntax, template: &str) -> bool {
    let has = |mark: &str| template.contains(mark.trim_ascii());
    match calls {
        CallSyntax::Json(json) => {
            has(&json.open)
                && [&json.name, json.arguments.first().unwrap_or(&json.name)].iter().all(|key| has_key(template, key))
        }
        CallSyntax::Tagged(tagged) => has(&tagged.argument.open),
        CallSyntax::Named(named) => has(named.block.as_ref().map_or(&named.open, |[open, _]| open)),
        CallSyntax::Python { open, .. }
        | CallSyntax::Braced { open, .. }
        | CallSyntax::Lark(LarkCalls { open, .. }) => has(open),
    }
}

/// Whether a template has a key of JSON, in quotes that may be escaped.
fn has_key(template: &str, key: &str) -> bool {
    template.contains(&format!("\"{key}\"")) || template.contains(&format!("\\\"{key}\\\""))
}

/// All texts between which and around which a call's own are written, the one that begins it first.
fn texts(calls: &CallSyntax) -> Vec<&str> {
    let (block, texts) = match calls {
        CallSyntax::Json(JsonCalls { block, open, close, .. }) => (block.as_ref(), vec![open, close]),
        CallSyntax::Named(NamedCalls { block, open, named, close }) => (block.as_ref(), vec![open, named, close]),
        CallSyntax::Python { open, close } => (None, vec![open, close]),
        CallSyntax::Braced { open, close, quote } => (None, vec![open, close, quote]),
        CallSyntax::Lark(LarkCalls { open, close, .. }) => (None, vec![open, close]),
        CallSyntax::Tagged(TaggedCalls { block, open, named, close, argument }) => {
            let between = [&argument.open, &argument.text, &argument.close].into_iter();
            let between = between.chain(&argument.json).chain(argument.kind.iter().flatten());
            (block.as_ref(), [open, named, close].into_iter().chain(between).collect())
        }
    };
    texts.into_iter().chain(block.into_iter().flatten()).map(String::as_str).collect()
}

/// One JSON object for each call, between tags.
fn hermes() -> CallSyntax {
    json(["<tool_call>\n", "\n</tool_call>"])
}

/// A list of JSON objects between tags, as Nemotron Nano 2 knows it.
fn listed() -> CallSyntax {
    json(["<TOOLCALL>", "</TOOLCALL>"])
}

fn json([open, close]: [&str; 2]) -> CallSyntax {
    let [open, close, name] = [open, close, "name"].map(Into::into);
    CallSyntax::Json(JsonCalls { block: None, open, close, name, arguments: vec!["arguments".to_owned()] })
}

/// The name behind a token, then a JSON object in a fence, as models distilled from DeepSeek-R1 know it.
fn fenced() -> CallSyntax {
    let block = Some(["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"].map(Into::into));
    let [open, named, close] =
        ["<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"].map(Into::into);
    CallSyntax::Named(NamedCalls { block, open, named, close })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens(calls: &[CallSyntax]) -> Vec<&str> {
        calls.iter().filter_map(|calls| texts(calls).first().copied()).collect()
    }

    #[test]
    fn a_template_that_knows_no_tools_has_calls_as_they_are_taught_in_the_prompt() {
        let family = [CallSyntax::Python { open: "<|a|>".to_owned(), close: "<|b|>".to_owned() }];
        assert_eq!(opens(&calls(&family, "<|a|>", false)), ["<tool_call>\n"]);
        let distilled = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>";
        assert_eq!(opens(&calls(&family, distilled, false)).len(), 2);
    }

    #[test]
    fn what_the_template_shows_comes_first() {
        let family = [CallSyntax::Python { open: "<|a|>".to_owned(), close: "<|b|>".to_owned() }];
        let shown = "<tool_call>\n{\\\"name\\\": x, \\\"arguments\\\": y}";
        assert_eq!(opens(&calls(&family, shown, true)), ["<tool_call>\n", "<|a|>"]);
        assert_eq!(opens(&calls(&family, &format!("<|a|>{shown}"), true)), ["<|a|>", "<tool_call>\n"]);
        assert_eq!(opens(&calls(&family, "", true)), ["<|a|>"]);
    }
}
