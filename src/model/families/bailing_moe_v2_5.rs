//! Ling 2.5 and Ring 2.5: `BailingMoeV2_5ForCausalLM` of vLLM.
//!
//! DeepSeek V3's latent attention in the last layer of each group, and lightning attention in the
//! others (<https://arxiv.org/abs/2501.08313>). Queries and keys of the latter may have norms over
//! heads, and rotate. Experts are those of Ling 2.0.

use serde_json::Value;

use super::bailing_moe::{self, Rules};
use super::{
    ActivationName, AttentionNames, ConfigError, Defaults, Family, Fields, KvNames, LatentNames,
    LatentRule, LayerConfig, LayerRule, LightningConfig, LightningNames, Mixer, MixerKind,
    ModelConfig, MoeNames, PositionRule, RecurrentConfig, RopeScaling, StateLayers, WeightNames,
    deepseek_v3, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "BailingMoeV2_5ForCausalLM",
    model_type: "bailing_hybrid",
    other_model_types: &["bailing_moe_linear", "bailing_moe_v2_5"],
    models: "Ling 2.5 and Ring 2.5",
    aliases: &[],
    defaults: Defaults {
        max_position_embeddings: 8_192,
        rope_theta: 600_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    latent: Some(&LatentRule {
        q_lora_rank: None,
        has_rope_interleave: false,
        names: LatentNames {
            q_proj: "attention.q_proj",
            q_a_proj: "attention.q_a_proj",
            q_a_norm: "attention.q_a_layernorm",
            q_b_proj: "attention.q_b_proj",
            kv_a_proj: "attention.kv_a_proj_with_mqa",
            kv_a_norm: "attention.kv_a_layernorm",
            kv_b_proj: KvNames::One("attention.kv_b_proj"),
        },
        ..deepseek_v3::LATENT
    }),
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Latent, MixerKind::Lightning],
    names: WeightNames {
        embed_tokens: "model.word_embeddings",
        attention: AttentionNames { o_proj: "attention.dense", ..llama::NAMES.attention },
        moe: MoeNames { correction_bias: "mlp.gate.expert_bias", ..llama::MOE },
        ..llama::NAMES
    },
    adjust,
    ..deepseek_v3::FAMILY
};

/// The heads of lightning attention, whose pairs are elements of both halves of the rotating part.
const OF_HEADS: Family = Family {
    latent: None,
    layers: LayerRule::Alike,
    rope: llama::PARTIAL_ROPE,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    ..FAMILY
};

const NAMES: LightningNames = LightningNames {
    qkv: "attention.query_key_value",
    is_by_head: false,
    head_norms: ["attention.query_layernorm", "attention.key_layernorm"],
    norm: "attention.g_norm",
    gate: "attention.g_proj",
    out: "attention.dense",
};

/// The field of the part of a head that rotates in lightning attention alone.
const PART: &str = "partial_rotary_factor";

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const GROUP: &str = "layer_group_size";
    let count = fields.required_size("num_hidden_layers")?;
    let group = fields.size(GROUP)?.unwrap_or(1);
    if !count.is_multiple_of(group) {
        // Implementations differ in the layers after the last whole group.
        let expected = format!("a divisor of num_hidden_layers, {count}");
        return Err(fields.invalid(GROUP, &expected));
    }
    // All heads have keys of their own, in both kinds of layers.
    let own = fields.without(&["num_key_value_heads"]);
    let lightning = lightning(&own, count, max_position_embeddings)?;
    let by_default = |layer: usize| !(layer + 1).is_multiple_of(group);
    let states = StateLayers { name: "linear_attention", by_default: &by_default };
    let of_layer = |index: usize, _: &LayerConfig| {
        let (heads, head_dim) = (lightning.slopes.len(), lightning.head_dim);
        let place = (index, count);
        let rates = LightningConfig::of_layer(place, heads, head_dim, lightning.activation).slopes;
        Ok(RecurrentConfig::Lightning(LightningConfig { slopes: rates, ..lightning.clone() }))
    };
    let mut layers = states.read(&of_latents(&own), family, max_position_embeddings, of_layer)?;
    for layer in &mut layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.norm_eps = lightning.norm_eps;
            if latent.rope.scaling != RopeScaling::Default {
                let field = match fields.value("rope_scaling") {
                    Some(_) => "rope_scaling",
                    None => "rope_parameters",
                };
                return Err(fields.invalid(field, "no scaling, which vLLM has in another form"));
            }
        }
    }
    Ok(layers)
}

/// Returns the fields without the part of a head that rotates. Latent attention has another one.
fn of_latents(fields: &Fields) -> Fields {
    let own = fields.without(&[PART]);
    match fields.value("rope_parameters").cloned() {
        Some(Value::Object(mut parameters)) => {
            parameters.remove(PART);
            own.with("rope_parameters", Value::Object(parameters))
        }
        _ => own,
    }
}

/// Reads the lightning attention of the first layer. Others have other rates.
fn lightning(
    fields: &Fields,
    num_layers: usize,
    max_position_embeddings: usize,
) -> Result<LightningConfig, ConfigError> {
    const GROUPS: &str = "group_norm_size";
    const HEADS: &str = "num_attention_heads";
    // Only the heads of a layer are read here.
    let alike = fields.without(&["layer_types"]);
    let layers = read_alike(&alike, &OF_HEADS, max_position_embeddings)?;
    let attention = layers.first().and_then(|layer| layer.mixer.attention());
    let attention = attention.ok_or_else(|| fields.missing(HEADS, "a positive integer"))?;
    let (num_heads, head_dim) = (attention.num_heads, attention.head_dim);
    if !num_heads.is_power_of_two() {
        // The rates of other numbers are interpolated.
        return Err(fields.invalid(HEADS, "a power of two"));
    }
    let num_groups = fields.size(GROUPS)?.unwrap_or(1);
    if !(num_heads * head_dim).is_multiple_of(num_groups) {
        let expected = format!("a divisor of the width of all heads, {}", num_heads * head_dim);
        return Err(fields.invalid(GROUPS, &expected));
    }
    let has_silu = match fields.flag("use_linear_silu")? {
        None => fields.flag("linear_silu")?,
        flag => flag,
    };
    let activation = match has_silu.unwrap_or(false) {
        true => ActivationName::Silu,
        false => ActivationName::Linear,
    };
    let has_rope = fields.flag_or("linear_rope", true)?;
    Ok(LightningConfig {
        qkv_bias: fields.flag("use_qkv_bias")?.unwrap_or(false),
        has_head_norms: fields.flag("use_qk_norm")?.unwrap_or(false),
        rope: attention.rope.clone().filter(|_| has_rope),
        scale: attention.scale,
        num_groups,
        norm_eps: fields.positive("rms_norm_eps")?.unwrap_or(FAMILY.defaults.norm_eps) as f32,
        names: &NAMES,
        ..LightningConfig::of_layer((0, num_layers), num_heads, head_dim, activation)
    })
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if config.tie_word_embeddings {
        return Err(fields.invalid("tie_word_embeddings", "false: vLLM's class ties nothing"));
    }
    bailing_moe::adjust(fields, config, &Rules::FIRST)
}
