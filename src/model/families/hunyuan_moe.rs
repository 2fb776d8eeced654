//! Hunyuan with experts: HF `HunYuanMoEV1ForCausalLM`.
//!
//! The dense Hunyuan with experts beside its MLP, which becomes the expert of all tokens.

use super::{
    ConfigError, Family, FeedForward, Fields, MlpNames, ModelConfig, MoeConfig, MoeNames, Scoring,
    SharedExpert, WeightNames, hunyuan, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "HunYuanMoEV1ForCausalLM",
    model_type: "hunyuan_v1_moe",
    models: "Hunyuan-A13B",
    aliases: &[("moe_topk", "num_experts_per_tok"), ("num_local_experts", "num_experts")],
    names: WeightNames {
        moe: MoeNames {
            router: "mlp.gate.wg",
            shared: MlpNames {
                inner: &["mlp.shared_mlp.gate_proj", "mlp.shared_mlp.up_proj"],
                down_proj: "mlp.shared_mlp.down_proj",
            },
            ..llama::MOE
        },
        ..hunyuan::FAMILY.names
    },
    adjust,
    ..hunyuan::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    hunyuan::adjust(fields, config)?;
    let count = config.layers.len();
    let of_layers = |field| fields.sizes(field, count);
    let num_experts = of_layers("num_experts")?.unwrap_or_else(|| vec![1; count]);
    let top_k = of_layers("num_experts_per_tok")?.unwrap_or_else(|| vec![1; count]);
    // Two fields of the published code, which the class of transformers does not have.
    let (widths, num_shared) =
        (of_layers("moe_intermediate_size")?, of_layers("num_shared_expert")?);
    for (index, layer) in config.layers.iter_mut().enumerate() {
        let dense = MoeConfig::of_layer(layer);
        let num_shared = num_shared.as_ref().map_or(1, |counts| counts[index]);
        let moe = MoeConfig {
            num_experts: num_experts[index],
            top_k: top_k[index],
            renormalize: true,
            scoring: Scoring::Softmax,
            shared: Some(SharedExpert {
                intermediate_size: dense.intermediate_size.saturating_mul(num_shared),
                has_gate: false,
            }),
            intermediate_size: widths.as_ref().map_or(dense.intermediate_size, |w| w[index]),
            ..dense
        };
        moe.check(fields)?;
        layer.feed_forward = FeedForward::Moe(moe);
    }
    Ok(())
}
