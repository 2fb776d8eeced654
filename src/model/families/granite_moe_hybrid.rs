//! Granite 4: HF `GraniteMoeHybridForCausalLM`.
//!
//! Granite with Mamba 2 in the place of attention in some layers, or in none. Every layer has an
//! expert of all tokens, and others if there are any (<https://github.com/ibm-granite>).

use super::{
    Bias, ConfigError, ExpertNames, Family, FeedForward, Fields, LayerConfig, LayerRule,
    Mamba2Fields, Mixer, MixerKind, MlpNames, ModelConfig, MoeConfig, MoeNames, Scoring,
    SharedExpert, WeightNames, bamba, granite, granite_moe, hybrid, inner_size, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GraniteMoeHybridForCausalLM",
    model_type: "granitemoehybrid",
    models: "Granite 4, hybrid and dense",
    aliases: &[("num_local_experts", "num_experts"), ("layers_block_type", "layer_types")],
    mlp_bias: Bias::Never,
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Mamba2],
    names: WeightNames {
        mlp: SHARED,
        moe: MoeNames {
            router: "block_sparse_moe.router.layer",
            experts: ExpertNames::Stacked {
                inner: &["block_sparse_moe.input_linear"],
                down_proj: "block_sparse_moe.output_linear",
            },
            shared: SHARED,
            ..llama::MOE
        },
        mamba: "mamba",
        in_adapters: granite_moe::IN_ADAPTERS,
        ..llama::NAMES
    },
    adjust,
    ..granite::FAMILY
};

const SHARED: MlpNames =
    MlpNames { inner: &["shared_mlp.input_linear"], down_proj: "shared_mlp.output_linear" };

const FIELDS: Mamba2Fields =
    Mamba2Fields { norm_eps: Some(("rms_norm_eps", 1e-6)), ..bamba::FIELDS };

/// The default width of an expert.
const INTERMEDIATE_SIZE: usize = 11_008;

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let count = fields.required_size("num_hidden_layers")?;
    let expected =
        || format!("a list of {count} (num_hidden_layers) of \"mamba\" or \"attention\"");
    let kinds = fields.layer_kinds("layer_types", &["linear_attention", "full_attention"])?;
    if kinds.as_ref().is_some_and(|kinds| kinds.len() != count) {
        return Err(fields.invalid("layer_types", &expected()));
    }
    let kind = |layer: usize| kinds.as_ref().and_then(|kinds| kinds.get(layer));
    let has_attention = |layer: usize| kind(layer) == Some(&1);
    // A model without state-space layers may lack their fields.
    let mamba = match kinds.as_ref().is_none_or(|kinds| kinds.contains(&0)) {
        true => {
            let hidden = fields.required_size("hidden_size")?;
            let inner = inner_size(fields, ("mamba_expand", 2.0), hidden)?;
            Mixer::Mamba2(FIELDS.read(fields, Some(inner))?)
        }
        false => Mixer::None,
    };
    hybrid(fields, family, max_position_embeddings, &mamba, has_attention)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    granite::adjust(fields, config)?;
    match fields.text("position_embedding_type")? {
        Some("rope") => {}
        None | Some("nope") => config.attentions().for_each(|attention| attention.rope = None),
        Some(_) => return Err(fields.invalid("position_embedding_type", "\"rope\" or \"nope\"")),
    }
    let shared = fields.size("shared_intermediate_size")?.unwrap_or(1_024);
    let num_experts = fields.count("num_experts")?.unwrap_or(8);
    if num_experts == 0 {
        for layer in &mut config.layers {
            if let FeedForward::Mlp(mlp) = &mut layer.feed_forward {
                mlp.intermediate_size = shared;
            }
        }
        return Ok(());
    }
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(2),
        intermediate_size: fields.size("intermediate_size")?.unwrap_or(INTERMEDIATE_SIZE),
        renormalize: true,
        scoring: Scoring::Softmax,
        shared: Some(SharedExpert { intermediate_size: shared, has_gate: false }),
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |_| true)
}
