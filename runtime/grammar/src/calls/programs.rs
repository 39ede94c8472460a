//! Calls written as programs write them: a name, and named arguments in brackets.

use super::style::Style;
use super::values::Values;
use super::{Callable, Writer, in_tool};
use crate::GrammarError;
use crate::lark::literal;

/// A list of calls as Python writes them, or of one.
pub(super) fn python(
    writer: &mut Writer<'_, '_>,
    [open, close]: [&str; 2],
    tools: &[Callable],
    parallel: bool,
) -> Result<String, GrammarError> {
    let call = any(writer, &Style::Python, tools, ["(", ")"])?;
    let (open, close) = (writer.tags(open), writer.tags(close));
    let more = if parallel { format!("({} {call})*", Style::Python.separator(writer)) } else { String::new() };
    Ok(format!("{open} \"[\" {call} {more} \"]\" {close}"))
}

/// A call with its arguments in braces.
pub(super) fn braced(
    writer: &mut Writer<'_, '_>,
    [open, close]: [&str; 2],
    quote: &str,
    tools: &[Callable],
) -> Result<String, GrammarError> {
    let call = any(writer, &Style::Braced { quote: quote.into() }, tools, ["{", "}"])?;
    let (open, close) = (writer.lark.mark(open), writer.lark.mark(close));
    Ok(format!("{open} {call} {close}"))
}

fn any(
    writer: &mut Writer<'_, '_>,
    style: &Style,
    tools: &[Callable],
    brackets: [&str; 2],
) -> Result<String, GrammarError> {
    let mut calls = Vec::new();
    for tool in tools {
        let mut values = Values::new(&tool.parameters, style);
        let listed = tool.listed().map_err(|fault| in_tool(tool, fault))?;
        let arguments = values.members(writer, &listed, Style::argument).map_err(|fault| in_tool(tool, fault))?;
        let [open, close] = brackets.map(literal);
        calls.push(writer.lark.rule(&format!("{} {open} {arguments} {close}", literal(&tool.name))));
    }
    Ok(writer.any(&calls))
}
