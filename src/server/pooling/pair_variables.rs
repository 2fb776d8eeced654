//! Variables of the chat template that writes a pair, and settings of its pictures.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::server::{
    chat::{given_kwargs, with_default_kwargs},
    http::error::ApiError,
    media::media_kwargs,
    state::AppState,
};

/// The template's variables. A model without a template for pairs ignores them, as in vLLM.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct PairVariables {
    /// The task that decides relevance: the variable `instruction`, unless that has a value.
    instruction: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
    mm_processor_kwargs: Option<Map<String, Value>>,
}

impl PairVariables {
    /// Returns the settings of the model's processor for all pictures of the request.
    ///
    /// # Errors
    /// If there are some and the server does not accept them.
    pub(super) fn media_kwargs(&self, state: &AppState) -> Result<Map<String, Value>, ApiError> {
        media_kwargs(state, self.mm_processor_kwargs.as_ref(), None)
    }

    /// Returns all variables. Those of the request win over the server's.
    ///
    /// # Errors
    /// If they include a template and the server accepts none.
    pub(super) fn checked(self, state: &AppState) -> Result<Map<String, Value>, ApiError> {
        let given = given_kwargs(self.chat_template_kwargs.as_ref(), state)?;
        Ok(with_default_kwargs(with_instruction(given, self.instruction), state))
    }
}

fn with_instruction(
    mut variables: Map<String, Value>,
    instruction: Option<String>,
) -> Map<String, Value> {
    if let Some(instruction) = instruction {
        variables.entry("instruction").or_insert(Value::String(instruction));
    }
    variables
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_instruction_is_a_variable_that_has_no_value_yet() {
        let of = |body: Value| {
            let PairVariables { instruction, chat_template_kwargs, .. } =
                serde_json::from_value(body).unwrap();
            Value::Object(with_instruction(chat_template_kwargs.unwrap_or_default(), instruction))
        };
        assert_eq!(of(json!({})), json!({}));
        assert_eq!(of(json!({"instruction": "a"})), json!({"instruction": "a"}));
        let both = json!({"instruction": "a", "chat_template_kwargs": {"x": 1}});
        assert_eq!(of(both), json!({"instruction": "a", "x": 1}));
        let named = json!({"instruction": "a", "chat_template_kwargs": {"instruction": "b"}});
        assert_eq!(of(named), json!({"instruction": "b"}));
    }
}
