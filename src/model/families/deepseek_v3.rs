//! DeepSeek V3, V3.1 and R1, Kimi K2, Moonlight: HF `DeepseekV3ForCausalLM`
//! (<https://arxiv.org/abs/2412.19437>).
//!
//! DeepSeek V2 with sigmoid scores, and with a bias of each expert that changes the choice of
//! groups and experts. The layers after the last, for several tokens a step, are not read.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, LatentRule, ModelConfig, MoeConfig, Scoring,
    deepseek_v2, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DeepseekV3ForCausalLM",
    model_type: "deepseek_v3",
    other_model_types: &["kimi_k2"],
    models: "DeepSeek V3, V3.1 and R1, Kimi K2, Moonlight",
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
    ],
    defaults: Defaults { max_position_embeddings: 4_096, ..llama::DEFAULTS },
    latent: Some(&LATENT),
    mlp_bias: Bias::Never,
    adjust,
    ..deepseek_v2::FAMILY
};

pub(super) const LATENT: LatentRule = LatentRule {
    q_lora_rank: Some(1_536),
    kv_lora_rank: 512,
    qk_nope_head_dim: 128,
    qk_rope_head_dim: 64,
    v_head_dim: Some(128),
    has_rope_interleave: true,
    names: deepseek_v2::LATENT,
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let defaults = Experts {
        num_experts: 256,
        top_k: 8,
        intermediate_size: 2_048,
        groups: (8, 4),
        scale: 2.5,
    };
    let moe = defaults.read(fields, config)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    deepseek_v2::set_experts(fields, config, &moe, 3)
}

/// The defaults of a family's experts.
pub(super) struct Experts {
    pub(super) num_experts: usize,
    pub(super) top_k: usize,
    pub(super) intermediate_size: usize,
    pub(super) groups: (usize, usize),
    pub(super) scale: f64,
}

impl Experts {
    /// Reads the experts of a layer: HF `DeepseekV3MoE`.
    pub(super) fn read(
        &self,
        fields: &Fields,
        config: &ModelConfig,
    ) -> Result<MoeConfig, ConfigError> {
        deepseek_v2::require(fields, "scoring_func", "sigmoid")?;
        deepseek_v2::require(fields, "topk_method", "noaux_tc")?;
        let intermediate_size =
            fields.size("moe_intermediate_size")?.unwrap_or(self.intermediate_size);
        let num_experts = fields.size("num_experts")?.unwrap_or(self.num_experts);
        Ok(MoeConfig {
            num_experts,
            top_k: fields.size("num_experts_per_tok")?.unwrap_or(self.top_k),
            intermediate_size,
            renormalize: fields.flag_or("norm_topk_prob", true)?,
            scoring: Scoring::Sigmoid,
            correction_bias: Some([num_experts].into()),
            groups: MoeConfig::groups_or(fields, self.groups)?,
            scale: fields.positive("routed_scaling_factor")?.unwrap_or(self.scale) as f32,
            shared: deepseek_v2::shared(fields, 1, intermediate_size)?,
            ..MoeConfig::of_dense(config)
        })
    }
}
