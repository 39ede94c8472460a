//! Chat templates: a conversation to the text that a model was trained on, exactly as Hugging Face's transformers
//! renders it.
//!
//! A template is untrusted: it may take a bounded number of steps, which pay for time and memory, nest to a bound, and
//! load nothing.

mod calls;
mod capabilities;
mod clock;
mod engine;
mod error;
mod gguf;
mod guard;
mod hf;
mod json;
mod marked;
mod messages;
mod number;
mod past;
mod prepare;
mod python;
mod tools;

use std::collections::BTreeMap;

pub use capabilities::{Capabilities, EFFORT_LEVELS, EffortSetting, ThinkingSwitch};
pub use clock::local_now;
pub use error::TemplateError;
use jiff::civil::DateTime;
use messages::Marks;
use minijinja::machinery::{eval, make_string_output};
use minijinja::{AutoEscape, Environment, State, Value};
pub use past::PastTurns;
pub use prepare::{prepare_messages, prepare_tools};
pub use tools::write_out_tools;

/// The name under which the default template is known.
const DEFAULT: &str = "default";
/// The name of the template for conversations with tools, where a model has one of its own.
const TOOL_USE: &str = "tool_use";

/// Longest template that is read, in bytes; the longest known one has a third of it.
const MAX_SOURCE: usize = 128 << 10;

/// Names that [`RenderInput::kwargs`] may not have: what they stand for is given elsewhere, as in transformers.
pub const RESERVED_VARIABLES: [&str; 7] =
    ["messages", "conversation", "tools", "chat_template", "continue_final_message", "tokenize", "return_dict"];

/// A model's chat template, or its set of them.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// By name.
    sources: BTreeMap<String, String>,
}

/// What a template is given.
#[derive(Clone, Debug, Default)]
pub struct RenderInput {
    /// The conversation, as the chat API has it: objects with `role`, `content` and more.
    pub messages: Vec<serde_json::Value>,
    /// The tools, as the chat API has them; `None` if there are none.
    pub tools: Option<serde_json::Value>,
    /// Further variables: `add_generation_prompt`, `enable_thinking`, …, none of [`RESERVED_VARIABLES`].
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    /// Special tokens by name (`bos_token`, …): [`Tokenizer::special_tokens`](crate::Tokenizer::special_tokens).
    pub special_tokens: BTreeMap<String, String>,
    /// Whether the arguments of tool calls, which the chat API has as a string of JSON, are handed over as the objects
    /// that most templates need. Keys keep their order and numbers their spelling; what is no object stays a string.
    /// transformers leaves this to its caller.
    pub parse_arguments: bool,
}

impl ChatTemplate {
    /// Reads a template; `named` are a model's further templates by name.
    ///
    /// # Errors
    /// A template that is not valid Jinja.
    pub fn new(source: &str, named: &[(String, String)]) -> Result<Self, TemplateError> {
        let named = named.iter().map(|(name, source)| (name.as_str(), source.as_str()));
        let sources: Vec<(&str, &str)> = named.chain([(DEFAULT, source)]).collect();
        engine::on_deep_stack(|| Self::read(&sources))?
    }

    fn read(sources: &[(&str, &str)]) -> Result<Self, TemplateError> {
        let mut read = BTreeMap::new();
        for (name, source) in sources {
            if source.len() > MAX_SOURCE {
                let reason = format!("it has {} bytes, more than {MAX_SOURCE}", source.len());
                return Err(TemplateError::Syntax { reason, line: 0 });
            }
            let source = engine::rewrite(source);
            guard::compile(&source, name).map_err(|error| TemplateError::syntax(&error))?;
            read.insert((*name).to_owned(), source);
        }
        Ok(Self { environment: engine::environment(), sources: read })
    }

    /// Whether the source of one of the templates has this text in it.
    fn mentions(&self, text: &str) -> bool {
        self.sources.values().any(|source| source.contains(text))
    }

    /// The prompt. `now` is what `strftime_now` tells: [`local_now`].
    ///
    /// # Errors
    /// What the template refuses, cannot handle, or does not come to an end with.
    pub fn render(&self, input: &RenderInput, now: DateTime) -> Result<String, TemplateError> {
        self.render_within(engine::allowance(input), input, now)
    }

    /// The same in this many steps.
    fn render_within(&self, steps: u64, input: &RenderInput, now: DateTime) -> Result<String, TemplateError> {
        self.render_context(messages::context(input, &Marks::none()), steps, input, now)
    }

    /// Renders with variables that were made of `input`.
    fn render_context(
        &self,
        mut context: BTreeMap<String, Value>,
        steps: u64,
        input: &RenderInput,
        now: DateTime,
    ) -> Result<String, TemplateError> {
        if let Some(name) = RESERVED_VARIABLES.into_iter().find(|name| input.kwargs.contains_key(*name)) {
            return Err(TemplateError::Reserved { name });
        }
        let strftime = move |state: &State<'_, '_>, format: &str| clock::strftime(state, now, format);
        context.entry("strftime_now".to_owned()).or_insert_with(|| Value::from_function(strftime));
        let name = if input.tools.is_some() && self.sources.contains_key(TOOL_USE) { TOOL_USE } else { DEFAULT };
        let source = self.sources.get(name).map(String::as_str).unwrap_or_default();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(steps));
        engine::on_deep_stack(|| {
            let mut prompt = String::new();
            let code = guard::compile(source, name).map_err(|error| TemplateError::syntax(&error))?;
            let (variables, mut output) = (Value::from_pairs(context), make_string_output(&mut prompt));
            eval(&environment, &code.main, variables, &code.blocks, &mut output, AutoEscape::None)
                .map_err(|error| TemplateError::rendering(&error))?;
            Ok(prompt)
        })?
    }
}
