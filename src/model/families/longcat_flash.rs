//! LongCat-Flash: HF `LongcatFlashForCausalLM` (<https://arxiv.org/abs/2509.01322>).
//!
//! DeepSeek V3's latent attention with factors of its latents, twice in each layer of the
//! checkpoint. Experts have a shortcut around the second half, and some return their input. The
//! decoder is `crate::model::shortcut`.

use super::{
    ConfigError, Defaults, ExpertNames, Family, FeedForward, Fields, LatentRule, LayerConfig,
    LayerRule, Mixer, MlpNames, ModelConfig, MoeConfig, MoeNames, MtpForm, SharedExpert,
    WeightNames, deepseek_v2, deepseek_v3, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "LongcatFlashForCausalLM",
    model_type: "longcat_flash",
    other_model_types: &[],
    models: "LongCat-Flash",
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("moe_topk", "num_experts_per_tok"),
        ("ffn_hidden_size", "intermediate_size"),
        ("expert_ffn_hidden_size", "moe_intermediate_size"),
    ],
    defaults: Defaults {
        intermediate_size: Some(12_288),
        max_position_embeddings: 131_072,
        rope_theta: 10_000_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    latent: Some(&LatentRule { has_rope_interleave: false, ..deepseek_v3::LATENT }),
    layers: LayerRule::Own(read_layers),
    names: WeightNames {
        mlp: MLP,
        moe: MoeNames {
            router: "mlp.router.classifier",
            correction_bias: "mlp.router.e_score_correction_bias",
            experts: ExpertNames::Each {
                module: "mlp.experts",
                inner: &["gate_proj", "up_proj"],
                down_proj: "down_proj",
            },
            shared: MLP,
            ..llama::MOE
        },
        layers_are_pairs: true,
        ..deepseek_v3::FAMILY.names
    },
    mtp: MtpForm::InModel,
    adjust,
    ..deepseek_v3::FAMILY
};

const MLP: MlpNames =
    MlpNames { inner: &["mlps.gate_proj", "mlps.up_proj"], down_proj: "mlps.down_proj" };

/// The fields of widths of heads, which follow from others.
const ROPE_DIM: &str = "head_dim";
const HEAD_DIM: &str = "qk_head_dim";

/// Reads both halves of each layer as layers.
fn read_layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let count = match fields.size("num_layers")? {
        Some(layers) => 2 * layers,
        // The class has it as a property, of which it takes the half, rounded down.
        None => fields.size("num_hidden_layers")?.map_or(56, |halves| halves / 2 * 2),
    };
    let fields = fields.with("num_hidden_layers", count.into());
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    let hidden = fields.required_size("hidden_size")? as f64;
    for layer in &mut layers {
        let Mixer::Latent(latent) = &mut layer.mixer else { continue };
        for (field, rope_dim, default) in [
            (ROPE_DIM, latent.qk_rope_head_dim, Some(64)),
            (HEAD_DIM, latent.qk_rope_head_dim + latent.qk_nope_head_dim, None),
        ] {
            let given = fields.size(field)?.or(default.filter(|_| !fields.has(field)));
            if given.is_some_and(|given| given != rope_dim) {
                return Err(fields.invalid(field, &format!("{rope_dim}, as the other widths say")));
            }
        }
        let Some(rank) = latent.q_lora_rank else {
            return Err(fields.invalid("q_lora_rank", "an integer: queries have a low rank"));
        };
        let scale = |rank: usize| (hidden / rank as f64).sqrt() as f32;
        latent.norm_scales = [scale(rank), scale(latent.kv_lora_rank)];
    }
    Ok(layers)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    for (field, served) in [
        ("mla_scale_q_lora", true),
        ("mla_scale_kv_lora", true),
        ("router_bias", false),
        ("norm_topk_prob", false),
    ] {
        if fields.flag(field)?.is_some_and(|value| value != served) {
            return Err(fields.invalid(field, &served.to_string()));
        }
    }
    deepseek_v2::require(fields, "zero_expert_type", "identity")?;
    deepseek_v2::require(fields, "attention_method", "MLA")?;
    let (num_experts, top_k) = (fields.size("num_experts")?, fields.size("num_experts_per_tok")?);
    let num_experts = num_experts.unwrap_or(512);
    const IDENTITIES: &str = "zero_expert_num";
    let num_identities = match fields.has(IDENTITIES) {
        true => fields.count(IDENTITIES)?.unwrap_or(0),
        false => 256,
    };
    config.has_shortcuts = true;
    for layer in config.layers.iter_mut().step_by(2) {
        let dense = MoeConfig::of_layer(layer);
        let shared = SharedExpert { intermediate_size: dense.intermediate_size, has_gate: false };
        let moe = MoeConfig {
            num_experts,
            num_identities,
            top_k: top_k.unwrap_or(12),
            intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(2_048),
            correction_bias: Some([num_experts + num_identities].into()),
            scale: fields.positive("routed_scaling_factor")?.unwrap_or(6.0) as f32,
            shared: Some(shared),
            ..dense
        };
        moe.check(fields)?;
        layer.feed_forward = FeedForward::Moe(moe);
    }
    Ok(())
}
