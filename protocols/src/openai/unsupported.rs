//! Fields with which other servers of these routes change the answer, and that this one does not honour. One that asks for
//! anything is refused by name: an answer that silently lacks what was asked for is worse than none.
//!
//! Fields that no server gives a meaning to are passed over: clients send extras of their own.

use serde_json::Value;

use crate::fields::{FieldError, Fields};

/// A field and the values with which it asks for nothing.
struct Foreign {
    field: &'static str,
    neutral: Neutral,
    /// What to do instead, or which value is taken.
    instead: &'static str,
}

/// Values that ask for nothing.
enum Neutral {
    None,
    Number(&'static [f64]),
    Flag(bool),
    /// An empty array, object or text.
    Empty,
    Word(&'static [&'static str]),
    Json(fn(&Value) -> bool),
}

impl Neutral {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Neutral::None => false,
            Neutral::Number(numbers) => value.as_f64().is_some_and(|x| numbers.contains(&x)),
            Neutral::Flag(flag) => value.as_bool() == Some(*flag),
            Neutral::Empty => match value {
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                Value::String(text) => text.is_empty(),
                _ => false,
            },
            Neutral::Word(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Neutral::Json(holds) => holds(value),
        }
    }
}

const fn never(field: &'static str) -> Foreign {
    Foreign { field, neutral: Neutral::None, instead: "leave it out" }
}

/// This server's field for the same is `instead`.
const fn renamed(field: &'static str, neutral: Neutral, instead: &'static str) -> Foreign {
    Foreign { field, neutral, instead }
}

const fn off_at_0(field: &'static str) -> Foreign {
    Foreign { field, neutral: Neutral::Number(&[0.0]), instead: "only 0 is" }
}

const fn off_at_1(field: &'static str) -> Foreign {
    Foreign { field, neutral: Neutral::Number(&[1.0]), instead: "only 1 is" }
}

const fn always(field: &'static str) -> Foreign {
    Foreign { field, neutral: Neutral::Flag(true), instead: "only true is" }
}

const fn not_on(field: &'static str) -> Foreign {
    Foreign { field, neutral: Neutral::Flag(false), instead: "only false is" }
}

const fn off_if_empty(field: &'static str) -> Foreign {
    Foreign { field, neutral: Neutral::Empty, instead: "leave it out" }
}

const fn word(field: &'static str, words: &'static [&'static str], instead: &'static str) -> Foreign {
    Foreign { field, neutral: Neutral::Word(words), instead }
}

/// How many answers there are, and what form they must have.
const ANSWERS: &[Foreign] = &[
    off_at_1("best_of"),
    off_at_1("num_beams"),
    not_on("use_beam_search"),
    off_at_1("length_penalty"),
    not_on("early_stopping"),
    never("prediction"),
];

/// How tokens are chosen.
const SAMPLING: &[Foreign] = &[
    renamed("do_sample", Neutral::Flag(true), "use `temperature` 0"),
    never("logits_processors"),
    off_if_empty("allowed_token_ids"),
    off_if_empty("bad_words"),
    off_at_1("typical"),
    off_at_1("typical_p"),
    off_at_1("tfs"),
    off_at_1("tfs_z"),
    off_at_0("top_a"),
    Foreign { field: "top_n_sigma", neutral: Neutral::Number(&[-1.0, 0.0]), instead: "only -1 is" },
    off_at_0("epsilon_cutoff"),
    off_at_0("eta_cutoff"),
    off_at_0("dynatemp_range"),
    off_at_0("smoothing_factor"),
    off_at_0("mirostat"),
    off_at_0("mirostat_mode"),
    off_at_0("dry_multiplier"),
    off_at_0("xtc_probability"),
    off_at_0("no_repeat_ngram_size"),
    off_at_0("penalty_alpha"),
    not_on("penalize_nl"),
    not_on("watermark"),
    off_if_empty("lora"),
    never("adapter_id"),
];

/// Where an answer ends, and what of it and beside it is told.
const EXTENT: &[Foreign] = &[
    renamed("max_new_tokens", Neutral::None, "use `max_tokens`"),
    renamed("stop_sequences", Neutral::Empty, "use `stop`"),
    off_if_empty("stop_token_ids"),
    off_at_0("min_tokens"),
    not_on("include_stop_str_in_output"),
    always("skip_special_tokens"),
    always("detokenize"),
    Foreign { field: "t_max_predict_ms", neutral: Neutral::Number(&[-1.0, 0.0]), instead: "only 0 is" },
    renamed("n_probs", Neutral::Number(&[0.0]), "use `logprobs`"),
    not_on("post_sampling_probs"),
    never("prompt_logprobs"),
    not_on("decoder_input_details"),
    not_on("return_tokens"),
    not_on("return_token_ids"),
    off_if_empty("response_fields"),
    never("truncate"),
    never("truncate_prompt_tokens"),
];

const CHAT: &[Foreign] = &[
    renamed("functions", Neutral::Empty, "use `tools`"),
    word("function_call", &["auto", "none"], "use `tools`"),
    Foreign {
        field: "modalities",
        neutral: Neutral::Json(|value| value.as_array().is_some_and(|all| all.iter().all(|one| one == "text"))),
        instead: "only [\"text\"] is",
    },
    never("audio"),
    never("web_search_options"),
    never("chat_template"),
    renamed("documents", Neutral::Empty, "use `chat_template_kwargs`"),
    always("include_reasoning"),
    word("reasoning_format", &["auto", "deepseek"], "only \"auto\" is"),
    always("add_generation_prompt"),
    not_on("add_special_tokens"),
    not_on("safe_prompt"),
    not_on("echo"),
    off_if_empty("suffix"),
    renamed("prompt", Neutral::None, "use `messages`"),
];

const COMPLETIONS: &[Foreign] = &[
    off_if_empty("suffix"),
    always("add_special_tokens"),
    renamed("messages", Neutral::None, "send them to /v1/chat/completions"),
    renamed("tools", Neutral::Empty, "send them to /v1/chat/completions"),
    renamed("chat_template", Neutral::None, "send messages to /v1/chat/completions"),
    renamed("documents", Neutral::Empty, "send them to /v1/chat/completions"),
];

/// What llama.cpp's own routes have besides.
const LLAMA: &[Foreign] = &[
    Foreign { field: "min_keep", neutral: Neutral::Number(&[0.0, 1.0]), instead: "only 0 is" },
    not_on("grammar_lazy"),
    off_if_empty("grammar_triggers"),
    Foreign { field: "adaptive_target", neutral: Neutral::Number(&[-1.0]), instead: "only -1 is" },
    off_if_empty("control_vectors"),
];

/// Refuses a request of llama.cpp's own routes that asks for what is not supported.
pub(crate) fn refuse_in_llama(fields: &Fields<'_>) -> Result<(), FieldError> {
    refuse_of(fields, &[SAMPLING, LLAMA])
}

/// Refuses a chat request that asks for what is not supported.
pub(super) fn refuse_in_chat(fields: &Fields<'_>) -> Result<(), FieldError> {
    refuse(fields, CHAT)
}

/// Refuses a completions request that asks for what is not supported.
pub(super) fn refuse_in_completions(fields: &Fields<'_>) -> Result<(), FieldError> {
    refuse(fields, COMPLETIONS)
}

/// Refuses what is foreign to every route, and then what is foreign to this one.
fn refuse(fields: &Fields<'_>, route: &[Foreign]) -> Result<(), FieldError> {
    refuse_of(fields, &[ANSWERS, SAMPLING, EXTENT, route])
}

fn refuse_of(fields: &Fields<'_>, tables: &[&[Foreign]]) -> Result<(), FieldError> {
    for foreign in tables.iter().copied().flatten() {
        if let Some(field) = fields.get(foreign.field)
            && !foreign.neutral.holds(field.value())
        {
            return Err(field.error(format!("is not supported with this value: {}", foreign.instead)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::Field;

    type Route = fn(&Fields<'_>) -> Result<(), FieldError>;

    const ROUTES: [(Route, &[Foreign]); 2] = [(refuse_in_chat, CHAT), (refuse_in_completions, COMPLETIONS)];

    fn asked(route: Route, body: &Value) -> Result<(), String> {
        route(&Field::body(body).object().unwrap()).map_err(|e| e.path)
    }

    /// A value that asks for nothing, if there is one.
    fn nothing(neutral: &Neutral) -> Option<Value> {
        match neutral {
            Neutral::None => None,
            Neutral::Number(numbers) => Some(json!(numbers[0])),
            Neutral::Flag(flag) => Some(json!(flag)),
            Neutral::Empty => Some(json!([])),
            Neutral::Word(words) => Some(json!(words[0])),
            Neutral::Json(holds) => [json!({"type": "text"}), json!(["text"])].into_iter().find(holds),
        }
    }

    #[test]
    fn every_foreign_field_is_refused_by_name_and_taken_where_it_asks_for_nothing() {
        for (route, own) in ROUTES {
            for foreign in [ANSWERS, SAMPLING, EXTENT, own].into_iter().flatten() {
                for asks in [json!({"type": "something"}), json!(0.125), json!("something"), json!([7])] {
                    assert_eq!(asked(route, &json!({ foreign.field: asks })), Err(foreign.field.to_owned()), "{asks}");
                }
                let neutral = nothing(&foreign.neutral).unwrap_or(Value::Null);
                assert_eq!(asked(route, &json!({ foreign.field: neutral })), Ok(()), "{} {neutral}", foreign.field);
            }
        }
    }

    #[test]
    fn what_no_server_gives_a_meaning_to_is_passed_over() {
        let body = json!({"unheard_of": 7, "user": "x", "store": true, "metadata": {}, "cache_prompt": true});
        for (route, _) in ROUTES {
            assert_eq!(asked(route, &body), Ok(()));
        }
    }
}
