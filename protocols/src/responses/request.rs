//! What `/v1/responses` and `/v1/responses/input_tokens` take, checked.

use std::collections::HashSet;
use std::sync::Arc;

use bantam_runtime::engine::{ChatPrompt, Prompt, Request, ResponseFormat};
use serde_json::{Map, Value};

use super::conversation::Conversation;
use super::input::{Item, items};
use super::store::Store;
use super::tools::Tools;
use crate::fields::{Field, FieldError, Fields};
use crate::openai::Thinking;
use crate::openai::options::{self, MAX_LOGPROBS};

/// A request for a response.
#[derive(Debug)]
pub(super) struct ResponsesRequest<'a> {
    pub(super) fields: Fields<'a>,
    pub(super) model: Option<&'a str>,
    pub(super) stream: bool,
    /// Whether a stream tells how far the prompt is.
    pub(super) progress: bool,
    pub(super) background: bool,
    /// Whether the response is kept.
    pub(super) store: bool,
    /// The items of the conversation before those of this request.
    pub(super) history: Vec<Arc<Value>>,
    pub(super) input: Vec<Arc<Value>>,
    pub(super) telling: Telling,
    /// False if there is nothing to answer: some clients send such a request first, to see whether the server is there.
    pub(super) asks: bool,
    pub(super) request: Request,
}

/// How the answer is to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Telling {
    /// What is thought is told as the summary that was asked for.
    pub(super) summary: bool,
    /// What is thought is told once more as `encrypted_content`.
    pub(super) sealed: bool,
    pub(super) logprobs: bool,
    /// Tools whose calls have a text for arguments.
    pub(super) custom: HashSet<String>,
}

impl<'a> ResponsesRequest<'a> {
    /// Reads a request that goes on from these items; `store` has those that it may refer to.
    pub(super) fn read(body: &'a Value, history: Vec<Arc<Value>>, store: &Store) -> Result<Self, FieldError> {
        let fields = Field::body(body).object()?;
        check(&fields)?;
        let Tools { declared, custom, choice } = Tools::read(&fields)?;
        let Asked { chat, input } = asked(&fields, &history, declared, store)?;
        let asks = chat.messages.iter().any(|message| message["role"] != "system");
        let include = included(&fields)?;
        let telling = Telling {
            summary: summary(&fields)?,
            sealed: include.contains("reasoning.encrypted_content"),
            logprobs: include.contains("message.output_text.logprobs"),
            custom,
        };
        let top = fields.count("top_logprobs", 0, MAX_LOGPROBS)?;
        let logprobs = telling.logprobs.then(|| top.unwrap_or(0));
        let options = options::request(&fields, Prompt::Chat(chat), logprobs)?;
        let request = Request {
            max_tokens: fields.count("max_output_tokens", 1, usize::MAX)?.or(options.max_tokens),
            tool_choice: choice,
            parallel_tool_calls: fields.flag("parallel_tool_calls")?.unwrap_or(true),
            response_format: format(&fields)?.unwrap_or_else(|| options.response_format.clone()),
            reasoning_budget: Thinking::read(&fields)?.budget,
            ..options
        };
        Ok(ResponsesRequest {
            model: fields.text("model")?,
            stream: fields.flag("stream")?.unwrap_or(false),
            progress: options::progress(&fields)?,
            background: fields.flag("background")?.unwrap_or(false),
            store: fields.flag("store")?.unwrap_or(true),
            fields,
            history,
            input,
            telling,
            asks,
            request,
        })
    }
}

/// A prompt, and the items of this request that it has.
#[derive(Debug)]
struct Asked {
    chat: ChatPrompt,
    input: Vec<Arc<Value>>,
}

fn asked(
    fields: &Fields<'_>,
    history: &[Arc<Value>],
    tools: Option<Vec<Value>>,
    store: &Store,
) -> Result<Asked, FieldError> {
    let mut conversation = Conversation::with(fields.text("instructions")?);
    for item in history {
        conversation.add(&Field::body(item))?;
    }
    let mut input = Vec::new();
    for Item { path, item } in items(fields, store)? {
        conversation.add(&Field::at(path, &item))?;
        input.push(item);
    }
    let thinking = Thinking::read(fields)?;
    let chat = ChatPrompt {
        messages: conversation.end(),
        tools,
        kwargs: Map::from_iter([("add_generation_prompt".to_owned(), Value::Bool(true))]),
        effort: thinking.effort,
        thinking: thinking.enabled,
        continue_last: false,
    };
    Ok(Asked { chat, input })
}

/// Fields that only come back in the response, and those that this server could only pass over to the client's surprise.
fn check(fields: &Fields<'_>) -> Result<(), FieldError> {
    fields.object("metadata")?;
    fields.count("max_tool_calls", 0, usize::MAX)?;
    for key in ["user", "safety_identifier", "prompt_cache_key", "service_tier", "truncation"] {
        fields.text(key)?;
    }
    for (key, instead) in
        [("conversation", "use `previous_response_id`"), ("prompt", "send the text as `instructions` and `input`")]
    {
        if let Some(field) = fields.get(key) {
            return Err(field.error(format!("is not supported: {instead}")));
        }
    }
    Ok(())
}

fn included<'a>(fields: &Fields<'a>) -> Result<HashSet<&'a str>, FieldError> {
    fields.items("include")?.unwrap_or_default().iter().map(Field::text).collect()
}

fn summary(fields: &Fields<'_>) -> Result<bool, FieldError> {
    let Some(reasoning) = fields.object("reasoning")? else { return Ok(false) };
    let asked = [reasoning.text("summary")?, reasoning.text("generate_summary")?];
    Ok(asked.into_iter().flatten().any(|asked| asked != "none"))
}

/// `text.format`.
fn format(fields: &Fields<'_>) -> Result<Option<ResponseFormat>, FieldError> {
    let Some(text) = fields.object("text")? else { return Ok(None) };
    let Some(format) = text.object("format")? else { return Ok(None) };
    let kind = format.required("type")?;
    match kind.text()? {
        "text" => Ok(None),
        "json_object" => Ok(Some(ResponseFormat::JsonObject)),
        "json_schema" => {
            let schema = format.required("schema")?.object()?;
            Ok(Some(ResponseFormat::JsonSchema(Value::Object(schema.map().clone()))))
        }
        other => Err(kind.error(format!("must be one of text, json_object, json_schema, found \"{other}\""))),
    }
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::ToolChoice;
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<ResponsesRequest<'_>, String> {
        ResponsesRequest::read(body, Vec::new(), &Store::default()).map_err(|e| e.to_string())
    }

    fn chat(request: &Request) -> &ChatPrompt {
        let Prompt::Chat(chat) = &request.prompt else { panic!("a conversation") };
        chat
    }

    #[test]
    fn every_option_arrives() {
        let schema = json!({"type": "object"});
        let body = json!({
            "model": "m", "instructions": "Be brief.", "input": "hello", "stream": true, "store": false, "background": false,
            "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "parallel_tool_calls": false, "top_logprobs": 2,
            "text": {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": true}, "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"}, "tools": [{"type": "function", "name": "f"}],
            "tool_choice": "required", "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
            "metadata": {"a": "b"}, "truncation": "auto", "user": "u", "service_tier": "auto", "unheard_of": 7,
        });
        let read = read(&body).unwrap();
        assert_eq!((read.model, read.stream, read.store, read.asks), (Some("m"), true, false, true));
        let request = &read.request;
        assert_eq!((request.sampling.temperature, request.sampling.top_p), (Some(0.5), Some(0.9)));
        assert_eq!((request.max_tokens, request.parallel_tool_calls, request.logprobs), (Some(7), false, Some(2)));
        assert_eq!(request.response_format, ResponseFormat::JsonSchema(schema));
        assert_eq!(request.tool_choice, ToolChoice::Required);
        let chat = chat(request);
        assert_eq!((chat.effort.as_deref(), chat.messages.len()), (Some("low"), 2));
        assert_eq!(chat.tools.as_ref().map(Vec::len), Some(1));
        let telling = Telling { summary: true, sealed: true, logprobs: true, custom: HashSet::new() };
        assert_eq!(read.telling, telling);
    }

    #[test]
    fn what_is_absent_stays_open_and_the_response_is_kept() {
        let body = json!({"input": "hello"});
        let read = read(&body).unwrap();
        assert_eq!((read.stream, read.store, read.request.max_tokens), (false, true, None));
        assert_eq!((read.request.logprobs, &read.request.response_format), (None, &ResponseFormat::Text));
        assert_eq!(read.telling, Telling::default());
    }

    #[test]
    fn a_conversation_goes_on_without_the_instructions_it_had() {
        let history = vec![
            Arc::new(json!({"type": "message", "role": "user", "content": "a"})),
            Arc::new(json!({"type": "message", "role": "assistant", "content": "b"})),
        ];
        let body = json!({"input": "c", "instructions": "Now be long."});
        let read = ResponsesRequest::read(&body, history, &Store::default()).unwrap();
        let roles: Vec<_> = chat(&read.request).messages.iter().map(|m| m["role"].clone()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert_eq!((read.history.len(), read.input.len()), (2, 1));
    }

    #[test]
    fn a_request_without_a_question_is_known() {
        for body in [json!({"input": []}), json!({"input": [], "instructions": "x"}), json!({})] {
            assert!(!read(&body).unwrap().asks, "{body}");
        }
    }

    #[test]
    fn wrong_values_are_named() {
        let cases = [
            (json!({"input": [{"role": "robot", "content": "x"}]}), "`input[0].role` must be one of user, assistant"),
            (
                json!({"input": [{"type": "item_reference", "id": "rs_1"}, {"role": 5, "content": "x"}]}),
                "`input[1].role` must be a string",
            ),
            (json!({"instructions": 5}), "`instructions` must be a string, found an integer"),
            (json!({"max_output_tokens": 0}), "`max_output_tokens` must be at least 1, found 0"),
            (json!({"top_logprobs": 21}), "`top_logprobs` must be between 0 and 20, found 21"),
            (
                json!({"text": {"format": {"type": "xml"}}}),
                "`text.format.type` must be one of text, json_object, json_schema",
            ),
            (json!({"text": {"format": {"type": "json_schema"}}}), "`text.format.schema` is required"),
            (json!({"include": "x"}), "`include` must be an array, found a string"),
            (json!({"metadata": []}), "`metadata` must be an object, found an array"),
            (json!({"conversation": "conv_1"}), "`conversation` is not supported: use `previous_response_id`"),
            (json!({"reasoning": {"effort": "huge"}}), "`reasoning.effort` must be one of none, minimal"),
        ];
        for (body, problem) in cases {
            let found = read(&body).err().unwrap();
            assert!(found.starts_with(problem), "{found}");
        }
    }
}
