//! Fields of `config.json` that change the model's results and are not supported. Each is refused
//! unless its value changes nothing. `fields_tests` covers all fields of the config classes.

use serde_json::Value;

use super::ConfigError;
use super::file::Fields;

/// A field, the test for values that change nothing, and the expected value in errors.
struct Unsupported {
    field: &'static str,
    changes_nothing: fn(&Value) -> bool,
    expected: &'static str,
}

const FIELDS: [Unsupported; 4] = [
    Unsupported {
        field: "is_encoder_decoder",
        changes_nothing: |value| *value == Value::Bool(false),
        expected: "false: models with an encoder are not supported",
    },
    Unsupported {
        field: "add_cross_attention",
        changes_nothing: |value| *value == Value::Bool(false),
        expected: "false: cross-attention is not supported",
    },
    Unsupported {
        field: "pruned_heads",
        changes_nothing: is_empty,
        expected: "nothing: pruned heads are not supported",
    },
    Unsupported {
        field: "per_layer_config",
        changes_nothing: is_empty,
        expected: "nothing: layers with settings of their own are not supported",
    },
];

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.is_empty())
        || value.as_array().is_some_and(|list| list.is_empty())
}

/// Refuses a config whose results would silently be wrong. The fields `harmless` change nothing.
pub(super) fn refuse(config: &Fields, harmless: &[&str]) -> Result<(), ConfigError> {
    for Unsupported { field, changes_nothing, expected } in FIELDS {
        let is_harmless = harmless.contains(&field);
        let changes = config.value(field).is_some_and(|value| !changes_nothing(value));
        if changes && !is_harmless {
            return Err(config.invalid(field, expected));
        }
    }
    Ok(())
}
