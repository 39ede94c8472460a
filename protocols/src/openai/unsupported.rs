//! Fields that change the answer and that this server does not honour yet. One that asks for anything is refused by
//! name: an answer that silently lacks what was asked for is worse than none.

use serde_json::{Value, json};

use crate::fields::{FieldError, Fields};

/// A field and the values with which it asks for nothing.
struct Unsupported {
    field: &'static str,
    harmless: fn(&Value) -> bool,
    supported: &'static str,
}

const fn never(field: &'static str) -> Unsupported {
    Unsupported { field, harmless: |_| false, supported: "leave it out" }
}

const fn off_at_0(field: &'static str) -> Unsupported {
    Unsupported { field, harmless: |v| v.as_f64() == Some(0.0), supported: "only 0 is" }
}

const fn off_at_1(field: &'static str, supported: &'static str) -> Unsupported {
    Unsupported { field, harmless: |v| v.as_f64() == Some(1.0), supported }
}

const fn off_if_empty(field: &'static str) -> Unsupported {
    Unsupported { field, harmless: is_empty, supported: "leave it out" }
}

/// Those of every route.
const COMMON: &[Unsupported] = &[
    off_at_1("n", "only 1 is"),
    off_at_1("best_of", "only 1 is"),
    Unsupported {
        field: "response_format",
        harmless: |v| v.get("type") == Some(&json!("text")),
        supported: "only {\"type\": \"text\"} is",
    },
    never("grammar"),
    never("json_schema"),
    never("regex"),
    never("structured_outputs"),
    never("guided_json"),
    never("guided_regex"),
    never("guided_choice"),
    never("guided_grammar"),
    off_at_1("repeat_penalty", "use `repetition_penalty`"),
    off_at_1("typical_p", "only 1 is"),
    off_at_0("mirostat"),
    off_at_0("dry_multiplier"),
    off_at_0("xtc_probability"),
    off_at_0("min_tokens"),
    Unsupported { field: "include_stop_str_in_output", harmless: |v| *v == json!(false), supported: "only false is" },
    off_if_empty("stop_token_ids"),
    off_if_empty("bad_words"),
    off_if_empty("lora"),
    never("samplers"),
];

const CHAT: &[Unsupported] = &[
    Unsupported {
        field: "tool_choice",
        harmless: |v| *v == json!("auto") || *v == json!("none"),
        supported: "only \"auto\" and \"none\" are",
    },
    Unsupported { field: "parallel_tool_calls", harmless: |v| *v == json!(true), supported: "only true is" },
    Unsupported { field: "functions", harmless: is_empty, supported: "use `tools`" },
    Unsupported {
        field: "function_call",
        harmless: |v| *v == json!("auto") || *v == json!("none"),
        supported: "use `tools`",
    },
    Unsupported { field: "modalities", harmless: |v| *v == json!(["text"]), supported: "only [\"text\"] is" },
    never("audio"),
    never("chat_template"),
    off_if_empty("documents"),
    Unsupported { field: "add_generation_prompt", harmless: |v| *v == json!(true), supported: "only true is" },
    Unsupported { field: "continue_final_message", harmless: |v| *v == json!(false), supported: "only false is" },
    never("web_search_options"),
    Unsupported { field: "verbosity", harmless: |v| *v == json!("medium"), supported: "only \"medium\" is" },
];

const COMPLETIONS: &[Unsupported] =
    &[Unsupported { field: "suffix", harmless: |v| *v == json!(""), supported: "leave it out" }];

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Refuses a chat request that asks for what is not supported.
pub(super) fn refuse_in_chat(fields: &Fields<'_>) -> Result<(), FieldError> {
    refuse(fields, COMMON)?;
    refuse(fields, CHAT)
}

/// Refuses a completions request that asks for what is not supported.
pub(super) fn refuse_in_completions(fields: &Fields<'_>) -> Result<(), FieldError> {
    refuse(fields, COMMON)?;
    refuse(fields, COMPLETIONS)
}

fn refuse(fields: &Fields<'_>, table: &[Unsupported]) -> Result<(), FieldError> {
    for row in table {
        if let Some(field) = fields.get(row.field)
            && !(row.harmless)(field.value())
        {
            return Err(field.error(format!("is not supported with this value: {}", row.supported)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Field;

    fn chat(body: &Value) -> Result<(), String> {
        refuse_in_chat(&Field::body(body).object().unwrap()).map_err(|e| e.path)
    }

    #[test]
    fn every_row_refuses_a_value_and_names_itself() {
        for row in COMMON.iter().chain(CHAT) {
            let mut body = json!({});
            body[row.field] = json!({"type": "something"});
            assert_eq!(chat(&body), Err(row.field.to_owned()));
        }
        let body = json!({"suffix": "x"});
        assert_eq!(refuse_in_completions(&Field::body(&body).object().unwrap()).unwrap_err().path, "suffix");
    }

    #[test]
    fn values_that_ask_for_nothing_pass() {
        let body = json!({
            "n": 1, "response_format": {"type": "text"}, "tool_choice": "auto", "parallel_tool_calls": true,
            "functions": [], "modalities": ["text"], "grammar": null, "verbosity": "medium", "unheard_of": 7,
            "repeat_penalty": 1.0, "mirostat": 0, "min_tokens": 0, "stop_token_ids": [],
        });
        assert_eq!(chat(&body), Ok(()));
    }
}
