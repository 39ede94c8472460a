//! How much a model is to think, in the many ways in which clients say so.

use bantam_text::EFFORT_LEVELS;

use crate::fields::{Field, FieldError, Fields};

/// What a request says of thinking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thinking {
    /// One of [`EFFORT_LEVELS`].
    pub(crate) effort: Option<String>,
    /// Most tokens of it.
    pub(crate) budget: Option<usize>,
    /// The template's own switch, where the request names it.
    pub(crate) enabled: Option<bool>,
}

/// Fields that hold a limit of tokens; -1 in them is none.
const BUDGETS: [&str; 4] = ["reasoning_budget_tokens", "reasoning_budget", "thinking_budget", "thinking_token_budget"];

impl Thinking {
    /// Of `reasoning_effort`, `reasoningEffort`, `reasoning`, `thinking`, `enable_thinking` and the budgets' names. Of two
    /// that say the same, the first counts.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let mut told = Thinking { enabled: fields.flag("enable_thinking")?, ..Thinking::default() };
        for name in ["reasoning_effort", "reasoningEffort"] {
            told.effort(fields.get(name).as_ref())?;
        }
        if let Some(reasoning) = fields.object("reasoning")? {
            told.effort(reasoning.get("effort").as_ref())?;
            told.budget(reasoning.get("max_tokens").as_ref())?;
            told.enabled = told.enabled.or(reasoning.flag("enabled")?);
        }
        if let Some(thinking) = fields.object("thinking")? {
            told.switch(&thinking)?;
        }
        for name in BUDGETS {
            told.budget(fields.get(name).as_ref())?;
        }
        Ok(told)
    }

    /// `{"type": "enabled" | "adaptive" | "disabled", "budget_tokens": N}`.
    fn switch(&mut self, thinking: &Fields<'_>) -> Result<(), FieldError> {
        let kind = thinking.required("type")?;
        let enabled = match kind.text()? {
            "enabled" | "adaptive" | "auto" => true,
            "disabled" => false,
            other => return Err(kind.error(format!("must be enabled, adaptive or disabled, found \"{other}\""))),
        };
        self.enabled = self.enabled.or(Some(enabled));
        self.budget(thinking.get("budget_tokens").as_ref())
    }

    fn effort(&mut self, field: Option<&Field<'_>>) -> Result<(), FieldError> {
        let Some(field) = field else { return Ok(()) };
        let level = match field.text()? {
            known if EFFORT_LEVELS.contains(&known) => known,
            other => return Err(field.error(format!("must be one of {}, found \"{other}\"", EFFORT_LEVELS.join(", ")))),
        };
        self.effort.get_or_insert_with(|| level.to_owned());
        Ok(())
    }

    fn budget(&mut self, field: Option<&Field<'_>>) -> Result<(), FieldError> {
        let Some(field) = field.filter(|field| field.value() != &serde_json::json!(-1)) else { return Ok(()) };
        let budget = field.count(0, usize::MAX)?;
        self.budget.get_or_insert(budget);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: &Value) -> Result<Thinking, String> {
        Thinking::read(&Field::body(body).object().unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn every_way_of_saying_it_is_understood() {
        for body in [
            json!({"reasoning_effort": "high"}),
            json!({"reasoningEffort": "high"}),
            json!({"reasoning": {"effort": "high"}}),
            json!({"reasoning_effort": "high", "reasoning": {"effort": "low"}}),
        ] {
            assert_eq!(read(&body).unwrap().effort.as_deref(), Some("high"), "{body}");
        }
        for (body, budget) in [
            (json!({"thinking": {"type": "enabled", "budget_tokens": 7}}), Some(7)),
            (json!({"reasoning_budget_tokens": 7, "thinking_budget": 9}), Some(7)),
            (json!({"reasoning_budget": 0}), Some(0)),
            (json!({"reasoning_budget": -1}), None),
        ] {
            assert_eq!(read(&body).unwrap().budget, budget, "{body}");
        }
        assert_eq!(read(&json!({"thinking": {"type": "disabled"}})).unwrap().enabled, Some(false));
        assert_eq!(read(&json!({"enable_thinking": true})).unwrap().enabled, Some(true));
    }

    #[test]
    fn what_is_wrong_is_named_where_it_stands() {
        for (body, problem) in [
            (json!({"reasoning_effort": 3}), "`reasoning_effort` must be a string, found an integer"),
            (
                json!({"reasoning": {"effort": "huge"}}),
                "`reasoning.effort` must be one of none, minimal, low, medium, high, xhigh, max, found \"huge\"",
            ),
            (json!({"thinking": {}}), "`thinking.type` is required"),
            (json!({"thinking": {"type": "x"}}), "`thinking.type` must be enabled, adaptive or disabled, found \"x\""),
            (json!({"thinking_budget": -2}), "`thinking_budget` must be at least 0, found -2"),
        ] {
            assert_eq!(read(&body).unwrap_err(), problem);
        }
    }
}
