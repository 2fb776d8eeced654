//! The fields of the families that came last.

use serde_json::{Value, json};

use super::{Row, honoured, latent_tests, refused, unchanged};

/// Returns the fields that a config of `architecture` needs for each row to have an effect.
pub(super) fn needed(_: &str) -> Value {
    json!({})
}

/// Returns the fields of a family.
pub(super) fn rows(name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "AXK1" | "Mistral4" => latent_tests::rows(name),
        "OlmoHybrid" => vec![
            honoured("linear_num_key_heads", json!(2)),
            honoured("linear_num_value_heads", json!(8)),
            honoured("linear_key_head_dim", json!(8)),
            honoured("linear_value_head_dim", json!(8)),
            honoured("linear_conv_kernel_dim", json!(3)),
            honoured("linear_allow_neg_eigval", json!(false)),
            honoured("attention_bias", json!(true)),
            honoured("layer_types", json!(["full_attention", "linear_attention"])),
            // Without a base, queries and keys do not rotate.
            honoured("rope_theta", json!(null)),
            honoured("rope_parameters", json!({ "rope_theta": null })),
            unchanged("rope_parameters", json!(null)),
            unchanged("mlp_bias", json!(true)),
            refused("linear_num_key_heads", json!(3)),
            refused("layer_types", json!(["full_attention", "sliding_attention"])),
        ],
        _ => return None,
    })
}
