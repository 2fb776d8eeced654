//! `thinking`: whether the model thinks, how long, and whether the client sees it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::server::http::{error::ApiError, fields::Int};

/// The names of the switch in templates.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// The field as the client sent it.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(super) struct ThinkingField {
    r#type: Option<String>,
    budget_tokens: Option<Int>,
    display: Option<String>,
}

/// The meaning of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thinking {
    /// Whether to think. `None` leaves it to the model's template.
    is_on: Option<bool>,
    /// Most tokens of thought.
    pub(super) budget: Option<u32>,
    /// Whether the client sees the thoughts. Otherwise it sees only that there are some.
    pub(super) is_shown: bool,
}

impl Thinking {
    /// Reads the field. A budget below Anthropic's minimum is accepted, too, because models differ.
    ///
    /// # Errors
    /// If a value is unknown, or a budget is missing or no number of tokens.
    pub(super) fn read(field: Option<&ThinkingField>) -> Result<Self, ApiError> {
        let Some(field) = field else {
            return Ok(Self { is_on: None, budget: None, is_shown: true });
        };
        let (is_on, budget) = match field.r#type.as_deref() {
            Some("disabled") => (false, None),
            Some("adaptive") => (true, None),
            Some("enabled") => (true, Some(field.budget()?)),
            Some(_) => {
                let wanted = "Input should be 'enabled', 'disabled' or 'adaptive'";
                return Err(ApiError::validation("body.thinking.type", wanted));
            }
            None => return Err(ApiError::validation("body.thinking.type", "Field required")),
        };
        let is_shown = match field.display.as_deref() {
            None | Some("summarized") => true,
            Some("omitted") => false,
            Some(_) => {
                let wanted = "Input should be 'summarized' or 'omitted'";
                return Err(ApiError::validation("body.thinking.display", wanted));
            }
        };
        Ok(Self { is_on: Some(is_on), budget, is_shown })
    }

    /// Returns the chat template's variables for it.
    pub(super) fn template_kwargs(self) -> Map<String, Value> {
        let names = self.is_on.map(|is_on| SWITCHES.map(|name| (name, is_on)));
        names.into_iter().flatten().map(|(name, is_on)| (name.to_owned(), is_on.into())).collect()
    }
}

impl ThinkingField {
    fn budget(&self) -> Result<u32, ApiError> {
        let place = "body.thinking.budget_tokens";
        let budget =
            self.budget_tokens.ok_or_else(|| ApiError::validation(place, "Field required"))?;
        budget.cast("thinking.budget_tokens", "at least 0")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(field: Value) -> Result<Thinking, String> {
        let field: Option<ThinkingField> = serde_json::from_value(field).unwrap();
        Thinking::read(field.as_ref()).map_err(|error| error.param.unwrap())
    }

    #[test]
    fn every_kind_is_read() {
        let thinking = |is_on, budget| Ok(Thinking { is_on, budget, is_shown: true });
        assert_eq!(read(Value::Null), thinking(None, None));
        assert_eq!(read(json!({"type": "disabled"})), thinking(Some(false), None));
        assert_eq!(read(json!({"type": "adaptive"})), thinking(Some(true), None));
        let enabled = json!({"type": "enabled", "budget_tokens": 1024, "display": "summarized"});
        assert_eq!(read(enabled), thinking(Some(true), Some(1024)));
        let hidden = read(json!({"type": "adaptive", "display": "omitted"})).unwrap();
        assert!(!hidden.is_shown);
    }

    #[test]
    fn a_wrong_field_is_named() {
        let wrong = [
            (json!({}), "body.thinking.type"),
            (json!({"type": "between_tools"}), "body.thinking.type"),
            (json!({"type": "enabled"}), "body.thinking.budget_tokens"),
            (json!({"type": "enabled", "budget_tokens": -1}), "thinking.budget_tokens"),
            (json!({"type": "adaptive", "display": "all"}), "body.thinking.display"),
        ];
        for (field, place) in wrong {
            assert_eq!(read(field.clone()), Err(place.to_owned()), "{field}");
        }
    }

    #[test]
    fn templates_get_it_under_the_names_they_know() {
        let kwargs = |field| Value::Object(read(field).unwrap().template_kwargs());
        assert_eq!(kwargs(Value::Null), json!({}));
        let off = json!({"enable_thinking": false, "thinking": false});
        assert_eq!(kwargs(json!({"type": "disabled"})), off);
        let on = json!({"enable_thinking": true, "thinking": true});
        assert_eq!(kwargs(json!({"type": "adaptive"})), on);
    }
}
