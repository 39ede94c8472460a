//! What a request asks of an answer's form: how it is read, and what its tokens are held to.

use bantam_grammar::{GrammarError, Guide, ResponseFormat, Rules, ToolChoice, relaxed};
use bantam_text::{EFFORT_LEVELS, Segment, StopMatcher, Tool};
use serde_json::{Value, json};

use super::{ChatPrompt, ModelInfo, Prompt, Refusal, Request, prepare};
use crate::actors::speech::Speech;

/// Bytes at the end of a prompt that show whether an answer begins within thinking.
const PROMPT_END: usize = 256;

/// What a request asks for.
pub(super) struct Asked {
    is_chat: bool,
    /// Whether thinking was not turned off.
    may_think: bool,
    tools: Vec<Tool>,
    choice: ToolChoice,
    parallel: bool,
    response: ResponseFormat,
    reasoning_budget: Option<usize>,
    prompt_end: String,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Self {
        let tools = match &request.prompt {
            Prompt::Chat(chat) if request.tool_choice != ToolChoice::None && !request.plain => {
                chat.tools.as_deref().unwrap_or_default()
            }
            _ => &[],
        };
        Asked {
            is_chat: matches!(request.prompt, Prompt::Chat(_)) && !request.plain,
            may_think: matches!(&request.prompt, Prompt::Chat(chat) if !is_off(chat)),
            tools: tools.iter().map(tool).collect(),
            choice: request.tool_choice.clone(),
            parallel: request.parallel_tool_calls,
            response: request.response_format.clone(),
            reasoning_budget: request.reasoning_budget,
            prompt_end: String::new(),
        }
    }

    /// Takes note of how the rendered prompt ends.
    pub(super) fn prompt_ends(&mut self, segments: &[Segment]) {
        let mut end = String::new();
        for segment in segments.iter().rev() {
            end.insert_str(0, &segment.text);
            if end.len() >= PROMPT_END {
                break;
            }
        }
        self.prompt_end = end;
    }

    /// What reads the answer to a conversation.
    ///
    /// # Errors
    /// Stop texts that cannot be looked for.
    pub(super) fn speech(&self, info: &ModelInfo, stops: Vec<String>) -> Result<Speech, Refusal> {
        let plain = plain(info, stops)?;
        if !self.is_chat {
            return Ok(plain);
        }
        Ok(Speech {
            decoder: plain.decoder.showing(info.marks.clone()),
            ends: matcher(info.output.stop_texts().to_vec())?,
            splitter: Some(info.output.splitter(&self.tools, &self.prompt_end)),
            ..plain
        })
    }

    /// What holds the answer's tokens to what is asked for; none if that is nothing.
    ///
    /// # Errors
    /// Something that cannot be held to, by its field.
    pub(super) fn guide(self, info: &ModelInfo) -> Result<Option<Guide>, Refusal> {
        let rules = self.rules(info);
        let is_free = rules.calls.is_empty() && rules.response == ResponseFormat::Text;
        let vocabulary = match &info.vocabulary {
            _ if is_free && rules.reasoning.is_empty() => return Ok(None),
            Ok(vocabulary) => vocabulary,
            // Without a form to keep, thinking is free.
            Err(_) if is_free => return Ok(None),
            Err(why) => {
                return Err(prepare::invalid("response_format", format!("cannot be kept by this model: {why}")));
            }
        };
        let grammar = vocabulary.compile(&rules).map_err(refused)?;
        Ok(Some(grammar.guide()))
    }

    fn rules(self, info: &ModelInfo) -> Rules {
        let end = self.prompt_end.trim_end();
        let marks = if self.is_chat { info.output.reasoning() } else { &[] };
        let is_inside = marks.iter().any(|marks| end.ends_with(marks.open.trim_end()));
        // Templates without a switch begin it all the same.
        let reasoning = if self.may_think || is_inside { marks.to_vec() } else { Vec::new() };
        let holds_calls = info.rules.calls && !self.tools.is_empty();
        let starts_in_reasoning = reasoning.iter().position(|marks| end.ends_with(marks.open.trim_end()));
        Rules {
            reasoning,
            starts_in_reasoning,
            reasoning_budget: self.reasoning_budget.or(info.thinking_budget),
            header: info.output.header().filter(|_| self.is_chat).cloned(),
            calls: if holds_calls { info.output.calls().to_vec() } else { Vec::new() },
            tools: if holds_calls { self.tools } else { Vec::new() },
            choice: self.choice,
            parallel: self.parallel,
            max_call_tokens: info.rules.max_call_tokens,
            response: if info.rules.responses { self.response } else { ResponseFormat::Text },
        }
    }
}

/// Whether a conversation asks not to think.
fn is_off(chat: &ChatPrompt) -> bool {
    match &chat.effort {
        Some(effort) => effort == EFFORT_LEVELS[0],
        None => chat.thinking == Some(false),
    }
}

/// What cannot be held to, behind the name of its field.
fn refused(error: GrammarError) -> Refusal {
    let told = error.to_string();
    let why = told.strip_prefix(&format!("`{}`", error.field)).unwrap_or(&told);
    let why = why.trim_start_matches(':').trim_start();
    Refusal::Invalid { why: format!("cannot be kept: {why}"), field: error.field }
}

/// What reads an answer that is nothing but text.
///
/// # Errors
/// Stop texts that cannot be looked for.
pub(super) fn plain(info: &ModelInfo, stops: Vec<String>) -> Result<Speech, Refusal> {
    let speech = Speech::plain(&info.tokenizer).map_err(|e| prepare::internal(&e))?;
    Ok(Speech { stops: matcher(stops)?, ..speech })
}

fn matcher(stops: Vec<String>) -> Result<StopMatcher, Refusal> {
    StopMatcher::new(stops).map_err(|e| prepare::invalid("stop", format!("cannot be matched: {e}")))
}

/// A tool as the chat API declares it. One without parameters takes none; one that is not strict looks after some of its
/// schema by itself.
fn tool(declared: &Value) -> Tool {
    let function = declared.get("function").unwrap_or(declared);
    Tool {
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        parameters: match &function["parameters"] {
            Value::Null => json!({"type": "object", "properties": {}}),
            given if function["strict"] == true => given.clone(),
            given => relaxed(given),
        },
    }
}
