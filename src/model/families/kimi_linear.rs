//! Kimi Linear: HF `KimiLinearForCausalLM`.
//!
//! DeepSeek V3's latent attention, without positions, in every fourth layer. The others have Kimi's
//! delta rule (<https://arxiv.org/abs/2510.26692>). Experts are those of DeepSeek V3, with
//! Mixtral's names.

use playhouse_kernels::KimiDecay;
use serde_json::Value;

use super::deepseek_v3::Experts;
use super::{
    ConfigError, Defaults, ExpertNames, Family, Fields, KimiDeltaConfig, LatentRule, LayerConfig,
    LayerRule, Mixer, MixerKind, MlpNames, ModelConfig, MoeNames, RecurrentConfig, RopeScaling,
    StateLayers, WeightNames, deepseek_v2, deepseek_v3, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "KimiLinearForCausalLM",
    model_type: "kimi_linear",
    other_model_types: &[],
    models: "Kimi Linear",
    aliases: &[
        ("model_max_length", "max_position_embeddings"),
        ("moe_renormalize", "norm_topk_prob"),
        ("num_expert_group", "n_group"),
        ("num_experts_per_token", "num_experts_per_tok"),
        ("num_shared_experts", "n_shared_experts"),
        ("num_local_experts", "num_experts"),
    ],
    defaults: Defaults { max_position_embeddings: 1_048_576, norm_eps: 1e-5, ..llama::DEFAULTS },
    latent: Some(&LatentRule { q_lora_rank: None, ..deepseek_v3::LATENT }),
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Latent, MixerKind::KimiDelta],
    names: NAMES,
    other_names: Some(&OF_TRANSFORMERS),
    adjust,
    ..deepseek_v3::FAMILY
};

const NAMES: WeightNames = WeightNames {
    moe: MoeNames {
        router: "block_sparse_moe.gate",
        correction_bias: "block_sparse_moe.gate.e_score_correction_bias",
        experts: ExpertNames::Each {
            module: "block_sparse_moe.experts",
            inner: &["w1", "w3"],
            down_proj: "w2",
        },
        shared: MlpNames {
            inner: &[
                "block_sparse_moe.shared_experts.gate_proj",
                "block_sparse_moe.shared_experts.up_proj",
            ],
            down_proj: "block_sparse_moe.shared_experts.down_proj",
        },
        ..llama::MOE
    },
    ..llama::NAMES
};

/// transformers 5.24 writes dense layers with the module of experts.
const OF_TRANSFORMERS: WeightNames = WeightNames {
    mlp: MlpNames {
        inner: &["block_sparse_moe.gate_proj", "block_sparse_moe.up_proj"],
        down_proj: "block_sparse_moe.down_proj",
    },
    ..NAMES
};

/// The object of the published config that has the sizes and the places of delta rules.
const PUBLISHED: &str = "linear_attn_config";

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    // No layer has positions, so their parameters have no effect.
    let unused = ["rope_parameters", "rope_scaling", "rope_theta"];
    let own = with_layer_types(fields)?.without(&unused);
    let by_default = |layer: usize| layer == 0 || !layer.is_multiple_of(4);
    let states = StateLayers { name: "linear_attention", by_default: &by_default };
    let delta = |_, layer: &LayerConfig| read(fields, layer).map(RecurrentConfig::Kimi);
    let mut layers = states.read(&own, family, max_position_embeddings, delta)?;
    for layer in &mut layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.rope.scaling = RopeScaling::Proportional { turning: 0, factor: 1.0 };
            latent.rope.is_interleaved = false;
        }
    }
    Ok(layers)
}

/// Reads the delta rule of all layers that have one.
fn read(fields: &Fields, layer: &LayerConfig) -> Result<KimiDeltaConfig, ConfigError> {
    let published = fields.nested(PUBLISHED)?;
    let size = |inner: &str, outer: &str, default: usize| {
        let of_object = published.as_ref().map(|object| object.size(inner)).transpose()?.flatten();
        let size = of_object.map_or_else(|| fields.size(outer), |size| Ok(Some(size)))?;
        Ok::<_, ConfigError>(size.unwrap_or(default))
    };
    let config = KimiDeltaConfig {
        num_heads: size("num_heads", "linear_num_heads", 32)?,
        head_dim: size("head_dim", "linear_head_dim", 128)?,
        kernel: size("short_conv_kernel_size", "linear_conv_kernel_dim", 4)?,
        activation: layer.activation(),
        decay: KimiDecay::Softplus,
        names: ["self_attn", "o_proj"],
        has_low_rank_gates: true,
    };
    let field = if published.is_some() { PUBLISHED } else { "linear_num_heads" };
    config.checked(fields, field)
}

/// Returns the fields with the kind of each layer, which the published config has as two lists that
/// count layers from 1.
fn with_layer_types(fields: &Fields) -> Result<Fields, ConfigError> {
    const LISTS: [(&str, &str); 2] =
        [("full_attn_layers", "full_attention"), ("kda_layers", "linear_attention")];
    let object = fields.nested(PUBLISHED)?;
    let Some(object) = object.filter(|_| fields.value("layer_types").is_none()) else {
        return Ok(fields.clone());
    };
    if LISTS.iter().any(|(list, _)| object.value(list).is_none()) {
        return Ok(fields.clone());
    }
    let count = fields.required_size("num_hidden_layers")?;
    let mut types = vec![Value::Null; count.min(1 << 16)];
    for (list, kind) in LISTS {
        for place in object.indices(list)? {
            // The number 0 becomes one that no layer has.
            let Some(entry) = types.get_mut(place.wrapping_sub(1)) else {
                let expected = format!("numbers from 1 to num_hidden_layers, {count}");
                return Err(object.invalid(list, &expected));
            };
            *entry = Value::from(kind);
        }
    }
    if types.contains(&Value::Null) {
        let expected = "both lists to name all layers";
        return Err(object.invalid(LISTS[1].0, expected));
    }
    Ok(fields.with("layer_types", types.into()))
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    deepseek_v2::require(fields, "moe_router_activation_func", "sigmoid")?;
    if fields.flag("mla_use_nope")? == Some(false) {
        return Err(fields.invalid("mla_use_nope", "true: attention has no positions"));
    }
    if config.tie_word_embeddings {
        return Err(fields.invalid("tie_word_embeddings", "false: HF's class ties nothing"));
    }
    let defaults = Experts {
        num_experts: 256,
        top_k: 8,
        intermediate_size: 1_024,
        groups: (1, 1),
        scale: 2.446,
    };
    let moe = defaults.read(fields, config)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(0);
    match fields.flags("mlp_layer_types", ["dense", "sparse"], config.layers.len())? {
        Some(is_sparse) => config.set_experts(fields, &moe, |layer| is_sparse[layer]),
        None => deepseek_v2::set_experts(fields, config, &moe, 1),
    }
}
