//! From a request to tokens: render, tokenize, check the window. Runs on the blocking pool, never on an I/O thread.

use std::time::Duration;

use bantam_grammar::Guide;
use bantam_text::{
    Capabilities, Joined, PastTurns, RenderInput, Segment, Specials, TemplateError, TokenizerError, local_now,
    prepare_messages, prepare_tools, write_out_tools,
};
use serde_json::{Map, Value};

use super::{
    ChatPrompt, ModelInfo, Prepared, Prompt, Refusal, Request,
    asked::{Asked, plain},
    continued,
};
use crate::{
    actors::speech::Speech,
    sampling::{Sampler, SamplingOverrides},
    turns::{Digest, Open, Recalled, TurnSeed, digests},
};

/// Stop texts of one request, and the length of each, beyond which matching them would cost more than any use needs.
const MAX_STOPS: usize = 64;
const MAX_STOP_BYTES: usize = 4096;

/// Alternatives per token that may be asked for.
const MAX_LOGPROBS: usize = crate::sampling::MOST_LOGPROBS;

/// A request that was checked as far as it can be before its tokens are known.
pub(crate) struct Read {
    prompt: ReadPrompt,
    sampler: Sampler,
    max_tokens: Option<usize>,
    speech: Speech,
    guide: Option<Guide>,
    ignore_eos: bool,
    priority: i32,
    deadline: Option<Duration>,
    /// Whether the text of the prompt is to be told.
    keep_prompt: bool,
}

enum ReadPrompt {
    Tokens(Vec<u32>),
    /// With what the answer is remembered by, if it is to be.
    Text(Joined, Option<Box<Names>>),
}

/// Of the prompt's beginnings, and of the prompt with its answer.
struct Names {
    beginnings: Vec<Digest>,
    open: Open,
    past: PastTurns,
    /// The conversation, if its template renders past turns otherwise than they were generated.
    chat: Option<ChatPrompt>,
}

/// Reads a request; `remember`: generated turns are remembered.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn read(info: &ModelInfo, request: Request, remember: bool) -> Result<Read, Refusal> {
    check_stops(&request.stop)?;
    if let Some(n) = request.logprobs.filter(|n| *n > MAX_LOGPROBS) {
        return Err(invalid("top_logprobs", format!("must be at most {MAX_LOGPROBS}, found {n}")));
    }
    let mut asked = Asked::of(&request);
    let overrides = SamplingOverrides { logprobs: request.logprobs, ..request.sampling };
    let params = info.sampling.with(&overrides).map_err(|e| invalid(&e.field, e.problem()))?;
    check_biases(info, overrides.logit_bias.as_deref().unwrap_or_default())?;
    // What is gone on with is half a turn, and is not found again by a whole one.
    let remember = remember && !matches!(&request.prompt, Prompt::Chat(chat) if chat.continue_last);
    let text = |segments: &[Segment], past: PastTurns, chat| {
        let joined = join(info, segments)?;
        let names = remember.then(|| digests(&joined));
        Ok(ReadPrompt::Text(joined, names.map(|(beginnings, open)| Box::new(Names { beginnings, open, past, chat }))))
    };
    let (prompt, speech) = match request.prompt {
        Prompt::Chat(chat) => {
            let past = info.template_capabilities.as_ref().map(|template| template.past_turns).unwrap_or_default();
            let segments = segments(info, &chat)?;
            asked.prompt_ends(&segments);
            // Calls are rendered in the template's own way once they are past.
            let matters = past.drift().is_some() || chat.tools.is_some();
            (text(&segments, past, Some(chat).filter(|_| matters))?, asked.speech(info, request.stop)?)
        }
        Prompt::Text(prompt) => {
            let segment = Segment { text: prompt, specials: Specials::Parse };
            (text(&[segment], PastTurns::default(), None)?, plain(info, request.stop)?)
        }
        Prompt::Tokens(tokens) => (ReadPrompt::Tokens(tokens), plain(info, request.stop)?),
    };
    Ok(Read {
        prompt,
        sampler: Sampler::new(params),
        max_tokens: request.max_tokens,
        speech,
        guide: asked.guide(info)?,
        ignore_eos: request.ignore_eos,
        priority: request.priority,
        deadline: request.deadline,
        keep_prompt: request.keep_prompt,
    })
}

impl Read {
    /// Names of the prompt's beginnings, by which remembered turns are found.
    pub(crate) fn take_digests(&mut self) -> Option<Vec<Digest>> {
        match &mut self.prompt {
            ReadPrompt::Text(_, names) => names.as_mut().map(|names| std::mem::take(&mut names.beginnings)),
            ReadPrompt::Tokens(_) => None,
        }
    }

    /// Encodes what is behind the remembered beginning, and checks the window.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn encode(self, info: &ModelInfo, recalled: Option<Recalled>) -> Result<Prepared, Refusal> {
        let mut text = None;
        let (tokens, turn) = match self.prompt {
            ReadPrompt::Tokens(tokens) => (tokens, None),
            ReadPrompt::Text(joined, names) => {
                text = self.keep_prompt.then(|| joined.text().into());
                let base = recalled.as_ref().map(|recalled| recalled.digest);
                let tokens = ids(info, &joined, recalled).map_err(|e| internal(&e))?;
                let seed = |Names { open, past, chat, .. }| TurnSeed {
                    open,
                    tokens: tokens.clone(),
                    base,
                    trims: past.trimmed,
                    chat,
                };
                let turn = names.map(|names| seed(*names));
                (tokens, turn)
            }
        };
        check_tokens(info, &tokens)?;
        Ok(Prepared {
            sampler: self.sampler,
            max_tokens: window(info, tokens.len(), self.max_tokens)?,
            tokens,
            speech: self.speech,
            guide: self.guide,
            ignore_eos: self.ignore_eos,
            share: true,
            chunk: 0,
            priority: self.priority,
            deadline: self.deadline,
            turn,
            text,
        })
    }
}

/// The tokens of a prompt, of which the recalled beginning keeps those that it had.
pub(super) fn ids(info: &ModelInfo, joined: &Joined, recalled: Option<Recalled>) -> Result<Vec<u32>, TokenizerError> {
    match recalled {
        Some(Recalled { special, mut tokens, .. }) => {
            tokens.extend(info.tokenizer.encode_from(joined, special)?);
            Ok(tokens)
        }
        None => Ok(with_bos(info, info.tokenizer.encode_joined(joined)?)),
    }
}

/// The prompt that a conversation becomes.
///
/// # Errors
/// If there is no template, or it refuses the conversation.
pub(crate) fn render(info: &ModelInfo, chat: &ChatPrompt) -> Result<(String, Vec<u32>), Refusal> {
    let joined = join(info, &segments(info, chat)?)?;
    let ids = ids(info, &joined, None).map_err(|e| internal(&e))?;
    Ok((joined.text().to_owned(), ids))
}

pub(super) fn internal(error: &TokenizerError) -> Refusal {
    Refusal::Internal(error.to_string())
}

pub(super) fn invalid(field: &str, why: String) -> Refusal {
    Refusal::Invalid { field: field.into(), why }
}

fn check_stops(stops: &[String]) -> Result<(), Refusal> {
    if stops.len() > MAX_STOPS {
        return Err(invalid("stop", format!("may have {MAX_STOPS} texts at most, found {}", stops.len())));
    }
    match stops.iter().find(|s| s.is_empty() || s.len() > MAX_STOP_BYTES) {
        Some(stop) => {
            Err(invalid("stop", format!("must have texts of 1..={MAX_STOP_BYTES} bytes, found {}", stop.len())))
        }
        None => Ok(()),
    }
}

/// A bias for a token that does not exist would be without effect.
fn check_biases(info: &ModelInfo, biases: &[(u32, f32)]) -> Result<(), Refusal> {
    match biases.iter().find(|(token, _)| *token as usize >= info.vocab) {
        Some((token, _)) => {
            let why = format!("is for a token that does not exist: the vocabulary has {}", info.vocab);
            Err(invalid(&format!("logit_bias.{token}"), why))
        }
        None => Ok(()),
    }
}

fn check_tokens(info: &ModelInfo, tokens: &[u32]) -> Result<(), Refusal> {
    if tokens.is_empty() {
        return Err(invalid("prompt", "is empty: at least one token is needed".into()));
    }
    match tokens.iter().find(|t| **t as usize >= info.vocab) {
        Some(t) => Err(invalid(
            "prompt",
            format!("has the token {t}, which does not exist: the vocabulary has {}", info.vocab),
        )),
        None => Ok(()),
    }
}

pub(super) fn segments(info: &ModelInfo, chat: &ChatPrompt) -> Result<Vec<Segment>, Refusal> {
    match chat.continue_last {
        true => continued::cut(rendered(info, &continued::marked(chat)?)?),
        false => rendered(info, chat),
    }
}

fn rendered(info: &ModelInfo, chat: &ChatPrompt) -> Result<Vec<Segment>, Refusal> {
    let template = info.template.as_ref().ok_or_else(|| {
        let why = info.template_error.as_deref().unwrap_or("the model file has no chat template");
        Refusal::NoTemplate(why.to_owned())
    })?;
    let mut kwargs = chat.kwargs.clone();
    set_thinking(info, chat, &mut kwargs);
    let tools = chat.tools.as_deref().unwrap_or_default();
    let messages = match &info.template_capabilities {
        Some(capabilities) => {
            let written = write_out_tools(&chat.messages, tools, capabilities, info.output.calls().first());
            prepare_messages(&written, capabilities)
        }
        None => chat.messages.clone(),
    };
    let knows_tools = info.template_capabilities.as_ref().is_none_or(|template| template.tools);
    let declared = |tools: &[Value]| match &info.template_capabilities {
        Some(capabilities) => prepare_tools(tools, capabilities),
        None => tools.to_vec(),
    };
    let input = RenderInput {
        messages,
        tools: chat.tools.as_deref().filter(|_| knows_tools).map(|tools| Value::Array(declared(tools))),
        kwargs,
        special_tokens: info.special_tokens.clone(),
        parse_arguments: true,
    };
    let refused = |e: TemplateError| Refusal::Template(e.to_string());
    if info.parse_special {
        let text = template.render(&input, local_now()).map_err(refused)?;
        return Ok(vec![Segment { text, specials: Specials::Parse }]);
    }
    template.render_marked(&input, &info.tokenizer, local_now()).map_err(refused)
}

/// Turns what a request says of thinking, or else the server, into variables of the template.
fn set_thinking(info: &ModelInfo, chat: &ChatPrompt, kwargs: &mut Map<String, Value>) {
    let unknown = Capabilities::default();
    let template = info.template_capabilities.as_ref().unwrap_or(&unknown);
    if let Some(on) = chat.thinking.filter(|_| chat.effort.is_none()) {
        template.set_thinking(on, kwargs);
    }
    let default = info.reasoning_effort.as_ref().filter(|_| chat.thinking.is_none());
    if let Some(effort) = chat.effort.as_ref().or(default) {
        template.set_effort(effort, kwargs);
    }
}

/// Refuses a text that is too long whatever its tokens are, before the work of finding them.
fn check_bytes(info: &ModelInfo, bytes: usize) -> Result<(), Refusal> {
    match info.tokenizer.fewest_tokens(bytes) {
        tokens if tokens > info.context => {
            Err(Refusal::ContextExceeded { prompt_tokens: tokens, max_tokens: 1, context: info.context })
        }
        _ => Ok(()),
    }
}

pub(super) fn join(info: &ModelInfo, segments: &[Segment]) -> Result<Joined, Refusal> {
    check_bytes(info, segments.iter().map(|segment| segment.text.len()).sum())?;
    info.tokenizer.join(segments).map_err(|e| internal(&e))
}

/// A template writes its own beginning-of-sequence token; where it does not and the vocabulary asks for one, it is added.
fn with_bos(info: &ModelInfo, mut ids: Vec<u32>) -> Vec<u32> {
    if let Some(bos) = info.tokenizer.bos().filter(|bos| info.tokenizer.add_bos() && ids.first() != Some(bos)) {
        ids.insert(0, bos);
    }
    ids
}

/// Tokens that may be generated: what was asked for or the default, as far as the window leaves room.
fn window(info: &ModelInfo, prompt_tokens: usize, asked: Option<usize>) -> Result<usize, Refusal> {
    let room = info.context.saturating_sub(prompt_tokens);
    match asked {
        Some(0) => Err(invalid("max_tokens", "must be at least 1".into())),
        _ if room == 0 => {
            Err(Refusal::ContextExceeded { prompt_tokens, max_tokens: asked.unwrap_or(1), context: info.context })
        }
        asked => Ok(asked.unwrap_or(info.max_tokens).min(room)),
    }
}
