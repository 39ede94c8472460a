//! Chat templates: a conversation to the text that a model was trained on, exactly as Hugging Face's transformers
//! renders it.
//!
//! A template is untrusted: it may take a bounded number of steps, nest and write to a bound, and load nothing.

mod calls;
mod capabilities;
mod clock;
mod engine;
mod error;
mod gguf;
mod hf;
mod json;
mod marked;
mod messages;
mod number;
mod prepare;
mod python;

use std::collections::BTreeMap;

pub use capabilities::{Capabilities, EffortSetting, ThinkingSwitch};
pub use clock::local_now;
pub use error::TemplateError;
use jiff::civil::DateTime;
use messages::Marks;
use minijinja::{Environment, Value};
pub use prepare::prepare_messages;

/// The name under which the default template is known.
const DEFAULT: &str = "default";
/// The name of the template for conversations with tools, where a model has one of its own.
const TOOL_USE: &str = "tool_use";

/// Longest template that is read, in bytes; the longest known one has a third of it.
const MAX_SOURCE: usize = 128 << 10;
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
        let mut environment = engine::environment();
        for (name, source) in sources {
            if source.len() > MAX_SOURCE {
                let reason = format!("it has {} bytes, more than {MAX_SOURCE}", source.len());
                return Err(TemplateError::Syntax { reason, line: 0 });
            }
            environment
                .add_template_owned((*name).to_owned(), engine::rewrite(source))
                .map_err(|error| TemplateError::syntax(&error))?;
        }
        Ok(Self { environment })
    }

    /// The prompt. `now` is what `strftime_now` tells: [`local_now`].
    ///
    /// # Errors
    /// What the template refuses, cannot handle, or does not come to an end with.
    pub fn render(&self, input: &RenderInput, now: DateTime) -> Result<String, TemplateError> {
        self.render_context(messages::context(input, &Marks::none()), input, now)
    }

    /// Renders with variables that were made of `input`.
    fn render_context(
        &self,
        mut context: BTreeMap<String, Value>,
        input: &RenderInput,
        now: DateTime,
    ) -> Result<String, TemplateError> {
        let strftime = move |format: &str| clock::strftime(now, format);
        context.entry("strftime_now".to_owned()).or_insert_with(|| Value::from_function(strftime));
        let for_tools = input.tools.is_some() && self.environment.get_template(TOOL_USE).is_ok();
        let name = if for_tools { TOOL_USE } else { DEFAULT };
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(engine::allowance(input)));
        engine::on_deep_stack(move || {
            let mut output = engine::Bounded::new(MAX_OUTPUT);
            let template = environment.get_template(name);
            template
                .and_then(|template| template.render_captured_to(Value::from_pairs(context), &mut output).map(drop))
                .map_err(|error| TemplateError::rendering(&error))?;
            Ok(output.into_text())
        })?
    }
}
