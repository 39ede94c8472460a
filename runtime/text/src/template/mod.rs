//! Chat templates: a conversation to the text that a model was trained on, exactly as Hugging Face's transformers
//! renders it.
//!
//! A template is untrusted: it may take a bounded number of steps, nest and write to a bound, and load nothing.

mod clock;
mod engine;
mod error;
mod gguf;
mod json;
mod marked;
mod messages;
mod number;
mod python;

use std::collections::BTreeMap;

pub use clock::local_now;
pub use error::TemplateError;
use jiff::civil::DateTime;
use messages::Marks;
use minijinja::{Environment, Value};

/// The name under which the default template is known.
const DEFAULT: &str = "default";
/// The name of the template for conversations with tools, where a model has one of its own.
const TOOL_USE: &str = "tool_use";

/// Longest prompt that a template may write, in bytes.
const MAX_OUTPUT: usize = 64 << 20;

/// A model's chat template, or its set of them.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
}

/// What a template is given.
#[derive(Clone, Debug, Default)]
pub struct RenderInput {
    /// The conversation, as the chat API has it: objects with `role`, `content` and more.
    pub messages: Vec<serde_json::Value>,
    /// The tools, as the chat API has them; `None` if there are none.
    pub tools: Option<serde_json::Value>,
    /// Further variables: `add_generation_prompt`, `enable_thinking`, …
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    /// Special tokens by name (`bos_token`, …): [`Tokenizer::special_tokens`](crate::Tokenizer::special_tokens).
    pub special_tokens: BTreeMap<String, String>,
    /// Whether the arguments of tool calls, which the chat API has as a string of JSON, are handed over as the objects
    /// that most templates need. Keys keep their order and numbers their spelling; what is no JSON stays a string.
    /// transformers leaves this to its caller.
    pub parse_arguments: bool,
}

impl ChatTemplate {
    /// Reads a template; `named` are a model's further templates by name.
    ///
    /// # Errors
    /// A template that is not valid Jinja.
    pub fn new(source: &str, named: &[(String, String)]) -> Result<Self, TemplateError> {
        let mut environment = engine::environment();
        let others = named.iter().map(|(name, source)| (name.as_str(), source.as_str()));
        for (name, source) in others.chain([(DEFAULT, source)]) {
            environment
                .add_template_owned(name.to_owned(), engine::rewrite_tags(source))
                .map_err(|error| TemplateError::syntax(&error))?;
        }
        Ok(Self { environment })
    }

    /// The prompt. `now` is what `strftime_now` tells: [`local_now`].
    ///
    /// # Errors
    /// What the template refuses, cannot handle, or does not come to an end with.
    pub fn render(&self, input: &RenderInput, now: DateTime) -> Result<String, TemplateError> {
        self.render_context(messages::context(input, &Marks::none()), input.tools.is_some(), now)
    }

    fn render_context(
        &self,
        mut context: BTreeMap<String, Value>,
        with_tools: bool,
        now: DateTime,
    ) -> Result<String, TemplateError> {
        let strftime = move |format: &str| clock::strftime(now, format);
        context.entry("strftime_now".to_owned()).or_insert_with(|| Value::from_function(strftime));
        let for_tools = self.environment.get_template(TOOL_USE).ok().filter(|_| with_tools);
        let template = for_tools.map_or_else(|| self.environment.get_template(DEFAULT), Ok);
        let mut output = engine::Bounded::new(MAX_OUTPUT);
        template
            .and_then(|template| template.render_captured_to(Value::from_pairs(context), &mut output).map(drop))
            .map_err(|error| TemplateError::rendering(&error))?;
        Ok(output.into_text())
    }
}
