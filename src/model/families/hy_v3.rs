//! Hunyuan 3: HF `HYV3ForCausalLM`.
//!
//! Llama with norms over heads, and DeepSeek V3's mixture of experts in all layers but the first.
//! Only `draft_heads` reads the layer after the last, for several tokens a step.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, MlpNames, ModelConfig, MoeConfig, MoeNames,
    MtpForm, SharedExpert, WeightNames, exaone_moe, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "HYV3ForCausalLM",
    model_type: "hy_v3",
    models: "Hunyuan 3 (Hy3)",
    aliases: &[("num_local_experts", "num_experts")],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: Some(13_312),
        max_position_embeddings: 131_072,
        rope_theta: 11_158_840.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::IfSet("mlp_bias"),
    names: WeightNames {
        moe: MoeNames {
            router: "mlp.router.gate",
            correction_bias: "mlp.expert_bias",
            shared: MlpNames {
                inner: &["mlp.shared_mlp.gate_proj", "mlp.shared_mlp.up_proj"],
                down_proj: "mlp.shared_mlp.down_proj",
            },
            ..llama::MOE
        },
        // In transformers 5, the router has no name of its own.
        in_adapters: &[(".shared_experts.", ".shared_mlp."), (".router.gate", ".gate")],
        ..llama::WITH_HEAD_NORMS
    },
    mtp: MtpForm::AfterWithNorm,
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Fields of the authors' code, of which HF's class has one value.
    for field in ["qk_norm", "route_norm", "moe_router_use_sigmoid"] {
        if fields.flag(field)? == Some(false) {
            return Err(fields.invalid(field, "true"));
        }
    }
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_536);
    let num_shared = fields.size("num_shared_experts")?.unwrap_or(1);
    let num_experts = fields.size("num_experts")?.unwrap_or(192);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size,
        renormalize: true,
        scale: fields.positive("router_scaling_factor")?.unwrap_or(2.826) as f32,
        shared: Some(SharedExpert {
            intermediate_size: num_shared * intermediate_size,
            has_gate: false,
        }),
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    // The published checkpoint has the layer, and its config may not name it.
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    let is_sparse = exaone_moe::sparse_layers(fields, config.layers.len())?;
    config.set_experts(fields, &moe, |layer| is_sparse[layer])
}
