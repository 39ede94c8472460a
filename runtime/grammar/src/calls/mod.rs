//! Calls of tools as grammars, in the syntax of each family.

mod arguments;
mod content;
mod forms;
mod json;
mod marks;
mod programs;
mod style;
mod tagged;
mod values;

use bantam_family_api::{CallSyntax, LarkCalls, MessageHeader};
use llguidance::api::GrammarWithLexer;
use serde_json::Value;

pub(crate) use arguments::Callable;
pub(crate) use marks::{ends_the_turn, opens_the_turn, triggers};

use crate::GrammarError;
use crate::lark::{Lark, literal};
use crate::schema::{Fault, with_options};

/// White space between the parts of a call: what templates write, never without end.
const WHITE_SPACE: &str = r"/[ \t]{1,4}|\n{1,2}[ \t]{0,32}/";

/// Keywords that restrict what a schema allows.
const RESTRICTING: &[&str] = &[
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
];

/// What writes calls.
pub(crate) struct Writer<'l, 'v> {
    lark: &'l mut Lark<'v>,
    /// White space that may be left out.
    space: String,
}

impl<'l, 'v> Writer<'l, 'v> {
    pub(crate) fn new(lark: &'l mut Lark<'v>) -> Self {
        let terminal = lark.terminal(WHITE_SPACE);
        let space = lark.rule(&format!("{terminal}?"));
        Self { lark, space }
    }

    /// All that a turn may have of calls: one, or as many as there are in a block, or any number of those, each in a message
    /// of its own where there are headers.
    pub(crate) fn turn(
        &mut self,
        syntax: &CallSyntax,
        tools: &[Callable],
        parallel: bool,
        header: Option<&(Vec<String>, MessageHeader)>,
    ) -> Result<String, GrammarError> {
        let one = self.one(syntax, tools, parallel)?;
        let one = match header {
            Some((between, header)) => {
                let names = tools.iter().map(|tool| tool.name.as_str());
                let to_tool = self.lark.header(between, header, names);
                self.lark.rule(&format!("{to_tool} {} {one}", self.space))
            }
            None => one,
        };
        let again = parallel && !ends_the_turn(syntax);
        let space = &self.space;
        let rest = if again { format!(" ({space} {one})*") } else { String::new() };
        Ok(self.lark.rule(&format!("{space} {one}{rest}")))
    }

    /// What one trigger begins: a call, or a block of calls.
    pub(crate) fn one(
        &mut self,
        syntax: &CallSyntax,
        tools: &[Callable],
        parallel: bool,
    ) -> Result<String, GrammarError> {
        let body = match syntax {
            CallSyntax::Json(calls) => json::calls(self, calls, tools, parallel),
            CallSyntax::Named(calls) => json::named(self, calls, tools, parallel),
            CallSyntax::Tagged(calls) => tagged::calls(self, calls, tools, parallel)?,
            CallSyntax::Python { open, close } => programs::python(self, [open, close], tools, parallel)?,
            CallSyntax::Braced { open, close, quote } => programs::braced(self, [open, close], quote, tools)?,
            CallSyntax::Lark(calls) => self.in_own_form(calls, tools),
        };
        Ok(self.lark.rule(&body))
    }

    /// A call in a form of the family's own: its grammar once for each tool, with what the tool puts into its holes.
    fn in_own_form(&mut self, calls: &LarkCalls, tools: &[Callable]) -> String {
        let (open, close, space) = (self.tags(&calls.open), self.tags(&calls.close), self.space.clone());
        let of_tool = |tool: &Callable| {
            let (name, arguments) = (literal(&tool.name), with_options(tool.parameters.clone()));
            let holes = format!("name: {name}\narguments: %json {arguments}\n");
            self.lark.part(GrammarWithLexer::from_lark(format!("{}\n{holes}", calls.grammar)))
        };
        let options: Vec<String> = tools.iter().map(of_tool).collect();
        let any = self.any(&options);
        format!("{open} {space} {any} {space} {close}")
    }

    /// As many of these calls as there may be, in a block if there is one.
    fn block(&self, block: Option<&[String; 2]>, any: &str, parallel: bool) -> String {
        let Some([open, close]) = block else { return any.to_owned() };
        let (open, close, space) = (self.tags(open.trim_start()), self.tags(close.trim_end()), &self.space);
        let more = if parallel { format!("({space} {any})*") } else { String::new() };
        format!("{open} {space} {any} {more} {space} {close}")
    }

    /// Any of these.
    fn any(&mut self, expressions: &[String]) -> String {
        match expressions {
            [one] => one.clone(),
            many => self.lark.rule(&many.join(" | ")),
        }
    }

    /// Tags, with white space between them and where the text has some at its ends.
    fn tags(&self, text: &str) -> String {
        let written: Vec<String> = marks::tags(text).iter().map(|tag| self.lark.mark(tag)).collect();
        let inner = written.join(&format!(" {} ", self.space));
        let blank = |at_end: bool| if at_end { self.space.as_str() } else { "" };
        format!("{} {inner} {}", blank(text.starts_with('\n')), blank(text.ends_with('\n')))
    }

    fn json(&mut self, schema: Value) -> String {
        self.lark.json(schema)
    }
}

/// What is wrong with a tool's parameters.
fn in_tool(tool: &Callable, fault: Fault) -> GrammarError {
    fault.in_field(&tool.field).of_tool(&tool.name)
}
