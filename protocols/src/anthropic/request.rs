//! What `/v1/messages` and `/v1/messages/count_tokens` take, checked.

use bantam_runtime::engine::{ChatPrompt, Prompt, Request, ResponseFormat};
use bantam_runtime::sampling::SamplingOverrides;
use bantam_text::EFFORT_LEVELS;
use serde_json::{Map, Value};

use super::conversation::conversation;
use super::tools::Tools;
use super::wire::Display;
use crate::fields::{Field, FieldError, Fields};
use crate::openai::options;

/// Most texts that may end a generation.
const MAX_STOPS: usize = 64;
/// Most tokens that are thought where nobody gives a budget; never more than half of the answer.
const MAX_DEFAULT_BUDGET: usize = 2048;

/// A messages request.
#[derive(Debug)]
pub(super) struct MessagesRequest<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) stream: bool,
    /// Whether a stream tells how far the prompt is.
    pub(super) progress: bool,
    /// Most tokens that are thought where neither the client nor the server has a limit, so that an answer comes.
    pub(super) default_budget: usize,
    /// Whether the client is told what the model thinks.
    pub(super) display: Display,
    pub(super) request: Request,
}

impl<'a> MessagesRequest<'a> {
    pub(super) fn read(body: &'a Value) -> Result<Self, FieldError> {
        let fields = Field::body(body).object()?;
        let max_tokens = fields.required("max_tokens")?.count(1, usize::MAX)?;
        let tools = Tools::read(&fields)?;
        let thinking = Thinking::read(&fields)?;
        let display = thinking.display;
        let request = Request {
            sampling: sampling(&fields)?,
            max_tokens: Some(max_tokens),
            stop: stops(&fields)?,
            tool_choice: tools.choice,
            parallel_tool_calls: tools.parallel,
            response_format: format(&fields)?,
            reasoning_budget: thinking.budget,
            ..Request::new(Prompt::Chat(chat(&fields, tools.declared, thinking)?))
        };
        Ok(MessagesRequest {
            model: fields.text("model")?,
            stream: fields.flag("stream")?.unwrap_or(false),
            progress: options::progress(&fields)?,
            default_budget: (max_tokens / 2).clamp(1, MAX_DEFAULT_BUDGET),
            display,
            request,
        })
    }
}

/// The prompt of which the tokens are to be counted, and the model that it is for.
pub(super) fn counted(body: &Value) -> Result<(Option<&str>, ChatPrompt), FieldError> {
    let fields = Field::body(body).object()?;
    let (tools, thinking) = (Tools::read(&fields)?, Thinking::read(&fields)?);
    Ok((fields.text("model")?, chat(&fields, tools.declared, thinking)?))
}

fn chat(fields: &Fields<'_>, tools: Option<Vec<Value>>, thinking: Thinking) -> Result<ChatPrompt, FieldError> {
    let kwargs = Map::from_iter([("add_generation_prompt".to_owned(), Value::Bool(true))]);
    let Thinking { effort, enabled, .. } = thinking;
    let messages = conversation(fields)?;
    let continue_last = messages.last().is_some_and(is_begun);
    Ok(ChatPrompt { messages, tools, kwargs, effort, thinking: enabled, continue_last })
}

/// Whether a last message is the beginning of the answer, put into the model's mouth.
fn is_begun(message: &Value) -> bool {
    message["role"] == "assistant" && message["content"] != "" && message.get("tool_calls").is_none()
}

/// Whether and how much the model is to think, as far as the request says.
struct Thinking {
    effort: Option<String>,
    enabled: Option<bool>,
    budget: Option<usize>,
    display: Display,
}

impl Thinking {
    /// `thinking` and `output_config.effort`, which counts unless thinking is turned off.
    fn read(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let effort = effort(fields)?.map(str::to_owned);
        let Some(given) = fields.object("thinking")? else {
            return Ok(Thinking { effort, enabled: None, budget: None, display: Display::Shown });
        };
        let budget = given.count("budget_tokens", 1, usize::MAX)?;
        let display = display(&given)?;
        let kind = given.required("type")?;
        match kind.text()? {
            "enabled" | "adaptive" | "between_tools" => Ok(Thinking { effort, enabled: Some(true), budget, display }),
            "disabled" => Ok(Thinking { effort: None, enabled: Some(false), budget: None, display }),
            other => {
                Err(kind.error(format!("must be one of enabled, disabled, adaptive, between_tools, found \"{other}\"")))
            }
        }
    }
}

/// `thinking.display`. Of what is thought there are neither summaries nor updates but the text: that is told in their place.
fn display(thinking: &Fields<'_>) -> Result<Display, FieldError> {
    let Some(field) = thinking.get("display") else { return Ok(Display::Shown) };
    match field.text()? {
        "omitted" => Ok(Display::Omitted),
        "summarized" | "updates" => Ok(Display::Shown),
        other => Err(field.error(format!("must be summarized or omitted, found \"{other}\""))),
    }
}

fn effort<'a>(fields: &Fields<'a>) -> Result<Option<&'a str>, FieldError> {
    let config = fields.object("output_config")?;
    let Some(field) = config.and_then(|config| config.get("effort")) else { return Ok(None) };
    match field.text()? {
        known if EFFORT_LEVELS.contains(&known) => Ok(Some(known)),
        other => Err(field.error(format!("must be one of {}, found \"{other}\"", EFFORT_LEVELS.join(", ")))),
    }
}

/// `output_config.format`, or `output_format` as it was called before.
fn format(fields: &Fields<'_>) -> Result<ResponseFormat, FieldError> {
    let config = fields.object("output_config")?;
    let given = config.and_then(|config| config.get("format")).or_else(|| fields.get("output_format"));
    let Some(given) = given else { return Ok(ResponseFormat::Text) };
    let given = given.object()?;
    let kind = given.required("type")?;
    match kind.text()? {
        "text" => Ok(ResponseFormat::Text),
        "json_schema" => {
            let schema = given.required("schema")?.object()?;
            Ok(ResponseFormat::JsonSchema(Value::Object(schema.map().clone())))
        }
        other => Err(kind.error(format!("must be \"json_schema\", found \"{other}\""))),
    }
}

/// The values' ranges are the sampler's to know: it refuses what is out of them by the same names.
fn sampling(fields: &Fields<'_>) -> Result<SamplingOverrides, FieldError> {
    Ok(SamplingOverrides {
        temperature: fields.number("temperature")?,
        top_k: fields.count("top_k", 0, usize::MAX)?,
        top_p: fields.number("top_p")?,
        ..SamplingOverrides::default()
    })
}

fn stops(fields: &Fields<'_>) -> Result<Vec<String>, FieldError> {
    let items = fields.items("stop_sequences")?.unwrap_or_default();
    if items.len() > MAX_STOPS {
        let problem = format!("may have {MAX_STOPS} texts at most, found {}", items.len());
        return Err(FieldError::new("stop_sequences", problem));
    }
    let text = |item: &Field<'_>| match item.text()? {
        "" => Err(item.error("must not be empty")),
        text => Ok(text.to_owned()),
    };
    items.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(fields: Value) -> Value {
        let mut body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x"}]});
        let Value::Object(fields) = fields else { panic!("fields") };
        body.as_object_mut().unwrap().extend(fields);
        body
    }

    fn read(fields: Value) -> Result<Request, String> {
        MessagesRequest::read(&with(fields)).map(|read| read.request).map_err(|e| e.to_string())
    }

    fn thinking(request: &Request) -> (Option<bool>, Option<&str>) {
        let Prompt::Chat(chat) = &request.prompt else { panic!("a conversation") };
        (chat.thinking, chat.effort.as_deref())
    }

    #[test]
    fn every_option_arrives() {
        let request = read(json!({
            "temperature": 0.5, "top_k": 3, "top_p": 0.9, "stop_sequences": ["a", "b"],
            "metadata": {"user_id": "u"}, "context_management": {"edits": []}, "service_tier": "auto",
        }));
        let request = request.unwrap();
        let s = &request.sampling;
        assert_eq!((s.temperature, s.top_k, s.top_p), (Some(0.5), Some(3), Some(0.9)));
        assert_eq!((request.max_tokens, request.stop), (Some(100), vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn thinking_is_asked_for_and_has_an_end() {
        let cases = [
            (json!({}), (None, None), None),
            (json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}), (Some(false), None), None),
            (json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}), (Some(true), None), Some(1024)),
            (json!({"thinking": {"type": "adaptive", "display": "omitted"}}), (Some(true), None), None),
            (
                json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
                (Some(true), Some("low")),
                None,
            ),
            (json!({"output_config": {"effort": "xhigh"}}), (None, Some("xhigh")), None),
        ];
        for (fields, expected, budget) in cases {
            let request = read(fields.clone()).unwrap();
            assert_eq!((thinking(&request), request.reasoning_budget), (expected, budget), "{fields}");
        }
        for (max_tokens, budget) in [(1, 1), (100, 50), (32_000, 2048)] {
            let body = with(json!({"max_tokens": max_tokens}));
            assert_eq!(MessagesRequest::read(&body).unwrap().default_budget, budget);
        }
    }

    #[test]
    fn thinking_is_told_unless_it_is_to_be_omitted() {
        for (display, told) in
            [(json!("omitted"), Display::Omitted), (json!("summarized"), Display::Shown), (json!(null), Display::Shown)]
        {
            let body = with(json!({"thinking": {"type": "enabled", "budget_tokens": 1024, "display": display}}));
            assert_eq!(MessagesRequest::read(&body).unwrap().display, told);
        }
    }

    #[test]
    fn schemas_arrive_by_either_name() {
        let given = json!({"type": "json_schema", "schema": {"type": "object"}});
        for fields in [json!({"output_config": {"format": given}}), json!({"output_format": given})] {
            let format = read(fields).unwrap().response_format;
            assert_eq!(format, ResponseFormat::JsonSchema(json!({"type": "object"})));
        }
        assert_eq!(read(json!({})).unwrap().response_format, ResponseFormat::Text);
    }

    #[test]
    fn wrong_values_are_named() {
        let cases = [
            (json!({"max_tokens": null}), "`max_tokens` is required"),
            (json!({"max_tokens": 0}), "`max_tokens` must be at least 1, found 0"),
            (json!({"temperature": "hot"}), "`temperature` must be a number, found a string"),
            (json!({"stop_sequences": "a"}), "`stop_sequences` must be an array, found a string"),
            (json!({"stop_sequences": ["a", ""]}), "`stop_sequences[1]` must not be empty"),
            (json!({"stop_sequences": vec!["a"; 65]}), "`stop_sequences` may have 64 texts at most, found 65"),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": 0}}),
                "`thinking.budget_tokens` must be at least 1, found 0",
            ),
            (
                json!({"thinking": {"type": "on"}}),
                "`thinking.type` must be one of enabled, disabled, adaptive, between_tools, found \"on\"",
            ),
            (
                json!({"output_config": {"effort": "huge"}}),
                "`output_config.effort` must be one of none, minimal, low, medium, high, xhigh, max, found \"huge\"",
            ),
            (json!({"output_format": {"type": "json_schema"}}), "`output_format.schema` is required"),
            (
                json!({"output_config": {"format": {"type": "xml"}}}),
                "`output_config.format.type` must be \"json_schema\", found \"xml\"",
            ),
            (
                json!({"thinking": {"type": "adaptive", "display": "hidden"}}),
                "`thinking.display` must be summarized or omitted, found \"hidden\"",
            ),
            (json!({"stream": "yes"}), "`stream` must be a boolean, found a string"),
        ];
        for (fields, problem) in cases {
            assert_eq!(read(fields).unwrap_err(), problem);
        }
    }

    #[test]
    fn tokens_are_counted_without_a_limit() {
        let (model, chat) = {
            let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
            let (model, chat) = counted(&body).unwrap();
            (model.map(str::to_owned), chat)
        };
        assert_eq!((model.as_deref(), chat.messages.len()), (Some("m"), 1));
    }
}
