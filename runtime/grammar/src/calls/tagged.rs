//! Calls between tags.

use bantam_family_api::{ArgumentTags, TaggedCalls};

use super::arguments::Parameter;
use super::content::Content;
use super::forms::{Form, forms};
use super::{Callable, Writer, in_tool};
use crate::GrammarError;
use crate::lark::{Piece, literal, pieces, quoted, regex};

/// A call of any of the tools, or a block of them.
pub(super) fn calls(
    writer: &mut Writer<'_, '_>,
    calls: &TaggedCalls,
    tools: &[Callable],
    parallel: bool,
) -> Result<String, GrammarError> {
    let each: Result<Vec<String>, GrammarError> = tools.iter().map(|tool| call(writer, calls, tool)).collect();
    let any = writer.any(&each?);
    Ok(writer.block(calls.block.as_ref(), &any, parallel))
}

fn call(writer: &mut Writer<'_, '_>, calls: &TaggedCalls, tool: &Callable) -> Result<String, GrammarError> {
    let open = writer.tags(calls.open.trim_start());
    let named = writer.tags(&calls.named);
    let mut arguments = Vec::new();
    for parameter in tool.listed().map_err(|fault| in_tool(tool, fault))? {
        let argument = argument(writer, &calls.argument, tool, &parameter)?;
        arguments.push(if parameter.is_required { argument } else { format!("({argument})?") });
    }
    let (name, arguments, space) = (literal(&tool.name), arguments.join(" "), writer.space.clone());
    let close = writer.tags(calls.close.trim_end());
    Ok(writer.lark.rule(&format!("{open} {name} {named} {space} {arguments} {close}")))
}

/// An argument, and white space behind it.
fn argument(
    writer: &mut Writer<'_, '_>,
    tags: &ArgumentTags,
    tool: &Callable,
    parameter: &Parameter<'_>,
) -> Result<String, GrammarError> {
    let forms = forms(&tool.parameters, &parameter.path, parameter.schema).map_err(|fault| in_tool(tool, fault))?;
    let mut values = Vec::new();
    for form in forms {
        values.push(match form {
            Form::Text(content) => text(writer, tags, &content),
            Form::Json(schema) => {
                let (open, json) = (writer.exact(tags.json.as_ref().unwrap_or(&tags.text)), writer.json(schema));
                let (space, close) = (writer.space.clone(), writer.tags(tags.close.trim()));
                format!("{open} {space} {json} {space} {close}")
            }
        });
    }
    let (open, value) = (writer.tags(&tags.open), values.join(" | "));
    let (name, space) = (literal(parameter.name), &writer.space);
    Ok(format!("{open} {name} ({value}) {space}"))
}

/// A text as it stands, up to the first tag that closes it.
fn text(writer: &mut Writer<'_, '_>, tags: &ArgumentTags, content: &Content) -> String {
    let open = writer.exact(&tags.text);
    let value = writer.until(content, tags.close.trim_end());
    format!("{open} {value}")
}

impl Writer<'_, '_> {
    /// Tags with white space between them, and the text's own at its end: there a value begins.
    fn exact(&mut self, text: &str) -> String {
        let blank = text.get(text.trim_end().len()..).unwrap_or_default();
        let mut tags = super::marks::tags(text.trim_end());
        let last = format!("{}{blank}", tags.pop().unwrap_or_default());
        let mut written: Vec<String> = tags.into_iter().map(|tag| self.lark.mark(tag)).collect();
        written.push(self.lark.mark(&last));
        written.join(&format!(" {} ", self.space))
    }

    /// A text up to what closes it, in which that does not occur. Tokens that are no text end it by themselves.
    pub(super) fn until(&mut self, content: &Content, close: &str) -> String {
        let pieces = pieces(self.lark.vocabulary(), close);
        let text = &content.expression;
        match pieces.as_slice() {
            [Piece::Text(close)] => {
                let with = regex(&format!("(?s:.*){}(?s:.*)", quoted(close)));
                self.lark.terminal(&format!("({text} & ~{with}) {}", literal(close)))
            }
            [begun @ Piece::Text(_), rest @ ..] => {
                let begun = self.lark.terminal(&format!("{text} {}", begun.expression()));
                format!("{begun} {}", joined(rest))
            }
            tokens => {
                let text = self.lark.terminal(text);
                format!("{text}{} {}", if content.may_be_empty { "?" } else { "" }, joined(tokens))
            }
        }
    }
}

fn joined(pieces: &[Piece]) -> String {
    pieces.iter().map(Piece::expression).collect::<Vec<_>>().join(" ")
}
