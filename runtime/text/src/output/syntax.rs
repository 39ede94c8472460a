//! Syntaxes of calls, ready to be looked for and read.

use std::fmt::Debug;
use std::sync::Arc;

use bantam_family_api::CallSyntax;

use super::braced::BracedReader;
use super::json::JsonReader;
use super::lark::{CallGrammar, LarkReader};
use super::named::NamedReader;
use super::python::PythonReader;
use super::scan::{Input, Read, gap, is_name, literal, tags};
use super::sink::Sink;
use super::tagged::{Tagged, TaggedReader};
use super::tools::Tools;

/// Reads what stands between the marks of a call, or of a list of them, telling of it as it comes.
pub(super) trait CallReader: Debug + Send + Sync {
    /// Reads as far as text is here.
    fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read;

    /// The turn ends before the call did, with text that could not be read further. A call that lacks nothing but its last
    /// marks is complete.
    fn finish(&mut self, _rest: &str, _sink: &mut Sink) {}
}

/// One syntax.
#[derive(Clone, Debug)]
pub(super) struct Syntax {
    /// Tags around all calls of a turn.
    pub(super) block: Option<[Vec<String>; 2]>,
    /// Tags before a call; none: nothing marks it.
    pub(super) open: Vec<String>,
    /// Tags behind it.
    pub(super) close: Vec<String>,
    form: Form,
}

/// Keys of calls in JSON.
#[derive(Clone, Debug)]
pub(super) struct JsonKeys {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
}

/// What stands between the marks.
#[derive(Clone, Debug)]
enum Form {
    Json(JsonKeys),
    Tagged(Arc<Tagged>),
    /// With what stands between name and arguments.
    Named(Vec<String>),
    Python,
    /// With the quotes of texts.
    Braced(String),
    Lark(CallGrammar),
}

impl Syntax {
    /// Makes a syntax ready.
    ///
    /// # Errors
    /// A grammar that cannot be used.
    pub(super) fn new(calls: &CallSyntax) -> Result<Self, String> {
        let block = |block: &Option<[String; 2]>| block.as_ref().map(|[open, close]| [tags(open), tags(close)]);
        Ok(match calls {
            CallSyntax::Json(json) => {
                let keys = JsonKeys { name: json.name.clone(), arguments: json.arguments.clone() };
                let form = Form::Json(keys);
                Self { block: block(&json.block), open: tags(&json.open), close: tags(&json.close), form }
            }
            CallSyntax::Tagged(tagged) => {
                let form = Form::Tagged(Arc::new(Tagged::new(tagged)));
                Self { block: block(&tagged.block), open: tags(&tagged.open), close: tags(&tagged.close), form }
            }
            CallSyntax::Named(named) => {
                let form = Form::Named(tags(&named.named));
                Self { block: block(&named.block), open: tags(&named.open), close: tags(&named.close), form }
            }
            CallSyntax::Python { open, close } => {
                Self { block: None, open: tags(open), close: tags(close), form: Form::Python }
            }
            CallSyntax::Braced { quote, .. } if quote.is_empty() => {
                return Err("`quote` must not be empty".into());
            }
            CallSyntax::Braced { open, close, quote } => {
                let form = Form::Braced(quote.clone());
                Self { block: None, open: tags(open), close: tags(close), form }
            }
            CallSyntax::Lark(lark) => {
                let (open, close) = (tags(&lark.open), tags(&lark.close));
                if open.is_empty() || close.is_empty() {
                    return Err("`open` and `close` must not be empty".into());
                }
                Self { block: None, open, close, form: Form::Lark(CallGrammar::new(&lark.grammar)?) }
            }
        })
    }

    /// Whether what stands behind the opening mark may begin with this.
    pub(super) fn begins_with(&self, c: char) -> bool {
        match self.form {
            Form::Json(_) => matches!(c, '{' | '['),
            Form::Python => matches!(c, '{' | '[') || is_name(c),
            Form::Tagged(_) | Form::Named(_) | Form::Braced(_) => is_name(c),
            Form::Lark(_) => true,
        }
    }

    /// What calls begin with that nothing marks, if that is how they may be written.
    pub(super) fn bare(&self) -> Option<char> {
        match self.form {
            Form::Json(_) if self.open.is_empty() => Some('{'),
            Form::Python => Some('['),
            _ => None,
        }
    }

    /// A reader of what stands behind the opening mark; `bare`: where there is none.
    fn reader(&self, tools: Tools, bare: bool) -> Box<dyn CallReader> {
        let tools = Tools { only: tools.only || bare, ..tools };
        let close = self.close.first().cloned();
        match &self.form {
            Form::Json(keys) if bare => Box::new(JsonReader::bare(keys.clone(), tools)),
            Form::Json(keys) => Box::new(JsonReader::marked(keys.clone(), close, tools)),
            Form::Tagged(tagged) => Box::new(TaggedReader::new(Arc::clone(tagged), tools)),
            Form::Named(named) => Box::new(NamedReader::new(named.clone(), close, tools)),
            Form::Python => Box::new(PythonReader::new(close, bare, tools)),
            Form::Braced(quote) => Box::new(BracedReader::new(quote.clone(), close, tools)),
            Form::Lark(grammar) => Box::new(LarkReader::new(grammar.clone(), close, tools)),
        }
    }
}

/// A call that is being read, up to the last of its marks.
#[derive(Debug)]
pub(super) struct CallInProgress {
    reader: Box<dyn CallReader>,
    /// Tags that may still follow, the next last.
    behind: Vec<String>,
    is_read: bool,
}

impl CallInProgress {
    /// Behind the opening mark.
    pub(super) fn new(syntax: &Syntax, tools: Tools, bare: bool) -> Self {
        let block = syntax.block.iter().flat_map(|[_, close]| close);
        let mut behind: Vec<String> =
            if bare { Vec::new() } else { syntax.close.iter().chain(block).cloned().collect() };
        behind.reverse();
        Self { reader: syntax.reader(tools, bare), behind, is_read: false }
    }

    /// Reads as far as text is here.
    pub(super) fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read {
        if !self.is_read {
            match self.reader.read(input, sink) {
                Read::Done => self.is_read = true,
                other => return other,
            }
        }
        while let Some(tag) = self.behind.last() {
            let text = input.text();
            if input.accept(gap(text).then(text, |text| literal(text, tag))).is_break() {
                return Read::More;
            }
            self.behind.pop();
        }
        Read::Done
    }

    /// The turn ends here, with text that could not be read further.
    pub(super) fn finish(&mut self, rest: &str, sink: &mut Sink) {
        if !self.is_read {
            self.reader.finish(rest, sink);
        }
    }
}
