//! Nanbeige 4.2: `NanbeigeForCausalLM` of its folder's own code, which vLLM runs, and of llama.cpp.
//!
//! Llama whose layers a token passes several times (`num_loops`). Each pass has keys and values of
//! its own, and the norm after the last layer follows each pass. The published model uses none of
//! the other parts that the code has, and each of them is refused.

use serde_json::Value;

use super::{ConfigError, Family, Fields, ModelConfig, Passes, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "NanbeigeForCausalLM",
    model_type: "nanbeige",
    models: "Nanbeige 4.2",
    adjust,
    ..llama::FAMILY
};

/// The fields of parts that are not supported.
const OTHERS: [&str; 11] = [
    "qk_layernorm",
    "emb_neighbor_num",
    "insert_ngram_layer_idx",
    "ngram_insert_all_layers",
    "enable_double_loop_split",
    "loop_middle_layers",
    "loop_share_kv",
    "enable_hyper_connection",
    "enable_mhc",
    "enable_h_res_identity",
    "enable_depth_attention",
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const WEIGHTS: &str = "loop_loss_weights";
    let is_off = |value: &Value| match value {
        Value::Bool(is_on) => !is_on,
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    for field in OTHERS {
        if fields.value(field).is_some_and(|value| !is_off(value)) {
            return Err(fields.invalid(field, "null, false or an empty list"));
        }
    }
    config.passes = Passes::read(fields, "num_loops", 1, config.layers.len())?;
    config.passes.has_norms = !fields.flag("skip_loop_final_norm")?.unwrap_or(false);
    // The authors' code counts the passes by this list of the training, if it has entries.
    if let Some(Value::Array(weights)) = fields.value(WEIGHTS)
        && !weights.is_empty()
        && weights.len() + 1 != config.passes.count
    {
        let expected = "an empty list, or one number less than num_loops";
        return Err(fields.invalid(WEIGHTS, expected));
    }
    Ok(())
}
