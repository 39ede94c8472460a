//! What a template can do, found out by rendering small conversations once.

use std::cell::Cell;
use std::collections::BTreeMap;

use jiff::civil::DateTime;
use serde_json::{Map, Value as Json, json};

use super::{ChatTemplate, PastTurns, RenderInput, TemplateError};

/// Steps that a template may take for one of the conversations.
const STEPS: u64 = 50_000;
/// Found in a prompt, it shows that a text was rendered.
const MARK: &str = "bantam-probe";
/// Another such text, for the value of an argument and the like.
const VALUE: &str = "bantam-value";
/// What the effort may be called.
const EFFORTS: [&str; 2] = ["reasoning_effort", "reasoning_strength"];
/// The efforts that APIs know, least first.
pub const EFFORT_LEVELS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// What a chat template understands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capabilities {
    /// Tools are declared to the model.
    pub tools: bool,
    /// Tools may be declared without a description and parameters.
    pub bare_tools: bool,
    /// Messages of role `tool` are rendered.
    pub tool_results: bool,
    /// An assistant may call several tools in one message.
    pub parallel_tool_calls: bool,
    /// An assistant's tool calls are rendered, with arguments that are objects. Otherwise they have to be written into its
    /// content.
    pub tool_calls: bool,
    /// The same with arguments that are a string.
    pub string_arguments: bool,
    /// `content` may be a string.
    pub string_content: bool,
    /// `content` may be a list of parts.
    pub content_parts: bool,
    /// `content` may be absent beside tool calls.
    pub absent_content: bool,
    /// A system message at the start is rendered.
    pub system: bool,
    /// A system message after others is rendered.
    pub late_system: bool,
    /// Messages of role `developer` are rendered.
    pub developer: bool,
    /// Reasoning of past turns before tool results is rendered.
    pub reasoning: bool,
    /// What becomes of a turn once it is past.
    pub past_turns: PastTurns,
    /// The variable that turns thinking on and off.
    pub thinking: Option<ThinkingSwitch>,
    /// The variable that sets how much the model thinks.
    pub effort: Option<EffortSetting>,
}

/// A template variable that turns thinking on and off.
#[derive(Clone, Debug, PartialEq)]
pub struct ThinkingSwitch {
    /// Its name.
    pub variable: String,
    /// Its value for on.
    pub on: Json,
    /// Its value for off.
    pub off: Json,
    /// Whether the model thinks when the variable is not given.
    pub default_on: bool,
}

/// A template variable that sets how much a model thinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffortSetting {
    /// Its name.
    pub variable: String,
    /// The values of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max` that it takes.
    pub levels: Vec<String>,
    /// Whether any text is taken.
    pub free_text: bool,
}

impl Capabilities {
    /// Sets the variable that turns thinking on or off, if there is one and `variables` has none of that name.
    pub fn set_thinking(&self, on: bool, variables: &mut Map<String, Json>) {
        if let Some(switch) = &self.thinking {
            let value = if on { &switch.on } else { &switch.off };
            variables.entry(switch.variable.clone()).or_insert_with(|| value.clone());
        }
    }

    /// Sets the variables that ask for one of [`EFFORT_LEVELS`], where `variables` has none of that name: thinking is
    /// turned off for `none` and on for the others, and of the levels that the template takes the nearest is chosen.
    pub fn set_effort(&self, level: &str, variables: &mut Map<String, Json>) {
        self.set_thinking(level != "none", variables);
        let setting = self.effort.as_ref();
        let variable = setting.map_or(EFFORTS[0], |setting| setting.variable.as_str());
        let nearest = match setting {
            Some(setting) => setting.nearest(level),
            // It does no harm, and the template may be one that only some conversations show to heed it.
            None => Some(level),
        };
        // A template that raises for `none` is not told of it: it was turned off above, or never thinks.
        if let Some(nearest) = nearest {
            variables.entry(variable.to_owned()).or_insert_with(|| json!(nearest));
        }
    }
}

impl EffortSetting {
    /// The level that is nearest to this one; of two, the greater.
    fn nearest(&self, level: &str) -> Option<&str> {
        let rank = |level: &str| EFFORT_LEVELS.iter().position(|known| *known == level);
        let asked = rank(level)?;
        let taken = self.levels.iter().filter(|taken| (taken.as_str() == "none") == (level == "none"));
        let ranked = taken.filter_map(|taken| Some((rank(taken)?, taken)));
        ranked.min_by_key(|(rank, _)| (rank.abs_diff(asked), std::cmp::Reverse(*rank))).map(|(_, taken)| taken.as_str())
    }
}

impl ChatTemplate {
    /// Finds out what the template understands. Takes some dozens of short renderings: to be done once, at load.
    ///
    /// # Errors
    /// A template that does not come to an end with a short conversation.
    pub fn capabilities(&self, special_tokens: &BTreeMap<String, String>) -> Result<Capabilities, TemplateError> {
        let mut probe = Probe {
            template: self,
            special_tokens,
            variables: Map::new(),
            parts_only: false,
            endless: Cell::new(None),
        };
        let string_content = probe.shows(vec![probe.message("user", MARK)]);
        probe.parts_only = !string_content;
        let thinking = probe.thinking();
        let past_turns = probe.past_turns();
        // Where thinking can be turned on reasoning and effort may count only then.
        probe.variables = thinking.iter().map(|switch| (switch.variable.clone(), switch.on.clone())).collect();
        let hi = || probe.message("user", "hi");
        let result = || probe.message("tool", "ok");
        let capabilities = Capabilities {
            tools: probe.shows_tools(),
            bare_tools: probe.shows_tool(&json!({"name": MARK})),
            tool_results: probe.shows(vec![hi(), probe.calls(1), probe.message("tool", MARK)]),
            parallel_tool_calls: probe.shows(vec![hi(), probe.calls(2), probe.message("tool", MARK)]),
            tool_calls: probe.shows_value(vec![hi(), probe.calls(1), result()]),
            string_arguments: probe.shows_value(vec![hi(), with_string_arguments(probe.calls(1)), result()]),
            string_content,
            content_parts: probe.shows_parts(),
            absent_content: probe.prompt(vec![hi(), without_content(probe.calls(1)), result()]).is_some(),
            system: probe.shows(vec![probe.message("system", MARK), hi()]),
            late_system: probe.shows_late_system(),
            developer: probe.shows(vec![probe.message("developer", MARK), hi()]),
            reasoning: probe.shows(vec![hi(), with_reasoning(probe.calls(1)), result()]),
            effort: probe.effort(),
            past_turns,
            thinking,
        };
        probe.endless.take().map_or(Ok(capabilities), Err)
    }
}

/// Renders probes with one template.
pub(super) struct Probe<'a> {
    pub(super) template: &'a ChatTemplate,
    special_tokens: &'a BTreeMap<String, String>,
    /// Given to every rendering.
    variables: Map<String, Json>,
    /// Whether content has to be a list of parts.
    parts_only: bool,
    /// Set by the first rendering that comes to no end; no other follows.
    endless: Cell<Option<TemplateError>>,
}

impl Probe<'_> {
    fn render(&self, messages: Vec<Json>, tools: Option<Json>, variables: Map<String, Json>) -> Option<String> {
        if let Some(error) = self.endless.take() {
            self.endless.set(Some(error));
            return None;
        }
        let mut kwargs = self.variables.clone();
        kwargs.extend(variables);
        kwargs.insert("add_generation_prompt".to_owned(), Json::Bool(true));
        let special_tokens = self.special_tokens.clone();
        let input = RenderInput { messages, tools, kwargs, special_tokens, parse_arguments: false };
        match self.template.render_within(STEPS, &input, DateTime::constant(2026, 1, 1, 0, 0, 0, 0)) {
            Ok(prompt) => Some(prompt),
            Err(error) => {
                self.endless.set(Some(error).filter(|error| matches!(error, TemplateError::Exhausted { .. })));
                None
            }
        }
    }

    pub(super) fn prompt(&self, messages: Vec<Json>) -> Option<String> {
        self.render(messages, None, Map::new())
    }

    /// The prompt of a greeting with one variable set.
    fn prompt_with(&self, variable: &str, value: &Json) -> Option<String> {
        let variables = Map::from_iter([(variable.to_owned(), value.clone())]);
        self.render(vec![self.message("user", "hi")], None, variables)
    }

    /// Whether the mark is in the prompt.
    fn shows(&self, messages: Vec<Json>) -> bool {
        self.prompt(messages).is_some_and(|prompt| prompt.contains(MARK))
    }

    fn shows_value(&self, messages: Vec<Json>) -> bool {
        self.prompt(messages).is_some_and(|prompt| prompt.contains(VALUE))
    }

    fn content(&self, text: &str) -> Json {
        if self.parts_only { json!([{"type": "text", "text": text}]) } else { json!(text) }
    }

    pub(super) fn message(&self, role: &str, text: &str) -> Json {
        let mut message = json!({"role": role, "content": self.content(text)});
        if let Some(fields) = message.as_object_mut().filter(|_| role == "tool") {
            fields.insert("tool_call_id".to_owned(), json!("call00000"));
            fields.insert("name".to_owned(), json!("f"));
        }
        message
    }

    /// An assistant's message that calls a tool `count` times.
    fn calls(&self, count: usize) -> Json {
        let call = |index| {
            let function = json!({"name": "f", "arguments": {"a": VALUE}});
            json!({"id": format!("call0000{index}"), "type": "function", "function": function})
        };
        let calls: Vec<Json> = (0..count).map(call).collect();
        json!({"role": "assistant", "content": self.content(""), "tool_calls": calls})
    }

    fn shows_tools(&self) -> bool {
        let parameters = json!({"type": "object", "properties": {"a": {"type": "string", "description": "b"}}});
        self.shows_tool(&json!({"name": MARK, "description": "c", "parameters": parameters}))
    }

    fn shows_tool(&self, function: &Json) -> bool {
        let tools = json!([{"type": "function", "function": function}]);
        let prompt = self.render(vec![self.message("user", "hi")], Some(tools), Map::new());
        prompt.is_some_and(|prompt| prompt.contains(MARK))
    }

    /// Whether the text of a part is in the prompt and its wrapping is not.
    fn shows_parts(&self) -> bool {
        let prompt = self.prompt(vec![json!({"role": "user", "content": [{"type": "text", "text": MARK}]})]);
        prompt.is_some_and(|prompt| prompt.contains(MARK) && !prompt.contains("\"text\"") && !prompt.contains("'text'"))
    }

    /// Whether a system message behind others is rendered, and does not replace the first.
    fn shows_late_system(&self) -> bool {
        let turns = [("system", VALUE), ("user", "hi"), ("assistant", "yes"), ("system", MARK), ("user", "hi")];
        let prompt = self.prompt(turns.iter().map(|(role, text)| self.message(role, text)).collect());
        prompt.is_some_and(|prompt| prompt.contains(MARK) && prompt.contains(VALUE))
    }

    fn thinking(&self) -> Option<ThinkingSwitch> {
        let default = self.prompt(vec![self.message("user", "hi")])?;
        let switches = [
            ("enable_thinking", json!(true), json!(false)),
            ("thinking", json!(true), json!(false)),
            ("thinking_option", json!("on"), json!("off")),
        ];
        switches.into_iter().find_map(|(variable, on, off)| {
            let (with, without) = (self.prompt_with(variable, &on)?, self.prompt_with(variable, &off)?);
            let default_on = with == default;
            (with != without).then(|| ThinkingSwitch { variable: variable.to_owned(), on, off, default_on })
        })
    }

    fn effort(&self) -> Option<EffortSetting> {
        EFFORTS.into_iter().find_map(|variable| {
            let prompt = |level: &str| self.prompt_with(variable, &json!(level));
            let prompts: Vec<_> = EFFORT_LEVELS.iter().filter_map(|level| Some((*level, prompt(level)?))).collect();
            let first = prompts.first().map(|(_, prompt)| prompt)?;
            let is_heeded = prompts.len() < EFFORT_LEVELS.len() || prompts.iter().any(|(_, prompt)| prompt != first);
            is_heeded.then(|| EffortSetting {
                variable: variable.to_owned(),
                levels: prompts.iter().map(|(level, _)| (*level).to_owned()).collect(),
                free_text: prompt(MARK).is_some_and(|prompt| prompt.contains(MARK)),
            })
        })
    }
}

fn without_content(mut message: Json) -> Json {
    if let Some(fields) = message.as_object_mut() {
        fields.remove("content");
    }
    message
}

fn with_string_arguments(mut message: Json) -> Json {
    if let Some(function) = message.pointer_mut("/tool_calls/0/function") {
        function["arguments"] = json!(VALUE);
    }
    message
}

fn with_reasoning(mut message: Json) -> Json {
    if let Some(fields) = message.as_object_mut() {
        fields.insert("reasoning_content".to_owned(), json!(MARK));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(source: &str, level: &str, given: &Json) -> Json {
        let template = ChatTemplate::new(source, &[]).unwrap();
        let mut variables = given.as_object().cloned().unwrap_or_default();
        template.capabilities(&BTreeMap::new()).unwrap().set_effort(level, &mut variables);
        Json::Object(variables)
    }

    #[test]
    fn an_effort_becomes_what_the_template_takes() {
        let turn = "{{ messages[0].content }}";
        let levels = "{% if reasoning_effort is defined and reasoning_effort not in ['low', 'medium', 'xhigh'] %}\
            {{ raise_exception('no such effort') }}{% endif %}{{ reasoning_effort }}";
        let both = format!("{turn}{levels}{{{{ enable_thinking }}}}");
        assert_eq!(variables(&both, "high", &json!({})), json!({"enable_thinking": true, "reasoning_effort": "xhigh"}));
        assert_eq!(
            variables(&both, "minimal", &json!({})),
            json!({"enable_thinking": true, "reasoning_effort": "low"})
        );
        assert_eq!(variables(&both, "none", &json!({})), json!({"enable_thinking": false}));
        assert_eq!(variables(turn, "high", &json!({})), json!({"reasoning_effort": "high"}));
        let strength = format!("{turn}{{{{ reasoning_strength }}}}");
        assert_eq!(variables(&strength, "low", &json!({})), json!({"reasoning_strength": "low"}));
        let given = json!({"enable_thinking": false, "reasoning_effort": "low"});
        assert_eq!(variables(&both, "high", &given), given, "what the client set itself stays");
    }

    #[test]
    fn a_template_that_comes_to_no_end_is_found_out_at_once() {
        let begin = std::time::Instant::now();
        let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
        let error = ChatTemplate::new(endless, &[]).unwrap().capabilities(&BTreeMap::new()).unwrap_err();
        assert!(matches!(error, TemplateError::Exhausted { .. }), "{error}");
        assert!(begin.elapsed().as_secs() < 5);
    }
}
