//! K-EXAONE: HF `ExaoneMoeForCausalLM`.
//!
//! The attention of EXAONE 4 after norms in Llama's places, and DeepSeek V3's mixture of experts.
//! Only `draft_heads` reads the module `mtp`, which predicts several tokens a step. Two lists are
//! those of vLLM's class: `sliding_windows`, and `swiglu_limits`, which is refused.

use serde_json::Value;

use super::{
    ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, MoeNames, MtpForm, SIZE_MAX,
    SharedExpert, WeightNames, exaone4, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "ExaoneMoeForCausalLM",
    model_type: "exaone_moe",
    models: "K-EXAONE",
    defaults: Defaults { intermediate_size: Some(16_384), ..exaone4::FAMILY.defaults },
    names: WeightNames {
        moe: MoeNames { correction_bias: "mlp.e_score_correction_bias", ..llama::MOE },
        ..llama::WITH_HEAD_NORMS
    },
    mtp: MtpForm::BesideDense,
    adjust,
    ..exaone4::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (exaone4::FAMILY.adjust)(fields, config)?;
    set_windows(fields, config)?;
    refuse_limits(fields)?;
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_024);
    let num_experts = fields.size("num_experts")?.unwrap_or(64);
    let num_shared = fields.count("num_shared_experts")?.unwrap_or(1);
    let shared =
        SharedExpert { intermediate_size: num_shared * intermediate_size, has_gate: false };
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size,
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(true),
        groups: MoeConfig::groups(fields)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(2.5) as f32,
        shared: (num_shared > 0).then_some(shared),
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    let is_sparse = sparse_layers(fields, config.layers.len())?;
    config.set_experts(fields, &moe, |layer| is_sparse[layer])
}

/// Gives each layer with a window that of the list, which has an entry for each layer.
fn set_windows(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const FIELD: &str = "sliding_windows";
    let Some(listed) = fields.value(FIELD) else { return Ok(()) };
    let count = config.layers.len();
    let invalid = || {
        let expected = format!("a list of {count} (num_hidden_layers) sizes");
        fields.invalid(FIELD, &expected)
    };
    let listed = listed.as_array().filter(|listed| listed.len() == count).ok_or_else(invalid)?;
    for (attention, window) in config.attentions().zip(listed) {
        // The entries of layers without a window do not count.
        if attention.sliding_window.is_some() {
            let size = window.as_u64().and_then(|size| u32::try_from(size).ok());
            let size = size.filter(|size| (1..=SIZE_MAX).contains(&(*size as usize)));
            attention.sliding_window = Some(size.ok_or_else(invalid)?);
        }
    }
    Ok(())
}

/// Rejects a list of limits of activations, unless no limit is above 0.
fn refuse_limits(fields: &Fields) -> Result<(), ConfigError> {
    const FIELD: &str = "swiglu_limits";
    let is_none = |limit: &Value| limit.as_f64().is_some_and(|limit| limit <= 0.0);
    match fields.value(FIELD) {
        Some(value) if !value.as_array().is_some_and(|list| list.iter().all(is_none)) => {
            Err(fields.invalid(FIELD, "no limit above 0: limits are not supported"))
        }
        _ => Ok(()),
    }
}

/// Returns for each of `count` layers whether it has experts: `mlp_layer_types`, the list of the
/// authors, or all layers from `first_k_dense_replace` on.
pub(super) fn sparse_layers(fields: &Fields, count: usize) -> Result<Vec<bool>, ConfigError> {
    if let Some(listed) = fields.flags("mlp_layer_types", ["dense", "sparse"], count)? {
        return Ok(listed);
    }
    let first = fields.count("first_k_dense_replace")?.unwrap_or(1);
    let layers: Vec<bool> = (0..count).map(|layer| layer >= first).collect();
    const OF_AUTHORS: &str = "is_moe_layer";
    if let Some(listed) = fields.value(OF_AUTHORS) {
        let listed = listed.as_array().map(|list| list.iter().map(|it| it.as_bool()).collect());
        // The authors' code reads the list, and HF's class the number.
        if listed != Some(layers.iter().copied().map(Some).collect::<Vec<_>>()) {
            let expected = format!("true from layer {first} (first_k_dense_replace) on alone");
            return Err(fields.invalid(OF_AUTHORS, &expected));
        }
    }
    Ok(layers)
}
