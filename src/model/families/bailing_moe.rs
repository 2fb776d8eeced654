//! Ling and Ring of the first generation: `BailingMoeForCausalLM` of their folders' own code, and
//! of vLLM.
//!
//! Llama with one matrix for queries, keys and values. Experts are chosen by softmax scores, beside
//! an expert of all tokens (<https://arxiv.org/abs/2503.05139>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, GroupScoring, ModelConfig,
    MoeConfig, MoeNames, QkvNames, Scoring, SharedExpert, WeightNames, llama,
};
use crate::weights::UnitVectors;

pub(super) const FAMILY: Family = Family {
    architecture: "BailingMoeForCausalLM",
    model_type: "bailing_moe",
    models: "Ling and Ring, the first generation (Ling-lite, Ling-plus)",
    defaults: Defaults { max_position_embeddings: 16_384, norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::IfSet("use_qkv_bias"),
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    rope: llama::PARTIAL_ROPE,
    names: WeightNames {
        embed_tokens: "model.word_embeddings",
        attention: AttentionNames {
            qkv: QkvNames::Stacked("attention.query_key_value"),
            q_norm: Some("attention.query_layernorm"),
            k_norm: Some("attention.key_layernorm"),
            o_proj: "attention.dense",
        },
        moe: MoeNames { correction_bias: "mlp.gate.expert_bias", ..llama::MOE },
        ..llama::NAMES
    },
    adjust: |fields, config| adjust(fields, config, &Rules::FIRST),
    ..llama::FAMILY
};

/// The defaults of a generation.
pub(super) struct Rules {
    /// Whether experts have sigmoid scores, and a bias each. It is also the default of norms over
    /// query and key heads.
    pub(super) is_sigmoid: bool,
    /// The number of groups of experts, and of groups that a token may choose from.
    pub(super) groups: (usize, usize),
    /// The first layer with experts.
    pub(super) first_sparse: usize,
    /// The number of shared experts.
    pub(super) num_shared: usize,
    /// Whether `moe_shared_expert_intermediate_size` is the width of all shared experts together.
    pub(super) has_whole_width: bool,
}

impl Rules {
    /// The first generation.
    pub(super) const FIRST: Self = Self {
        is_sigmoid: false,
        groups: (1, 1),
        first_sparse: 0,
        num_shared: 0,
        has_whole_width: false,
    };

    /// The second one.
    pub(super) const SECOND: Self = Self { is_sigmoid: true, groups: (8, 4), ..Self::FIRST };
}

/// Reads the norms of heads and of the output layer, and the experts.
pub(super) fn adjust(
    fields: &Fields,
    config: &mut ModelConfig,
    rules: &Rules,
) -> Result<(), ConfigError> {
    refuse(fields)?;
    if !fields.flag_or("use_qk_norm", rules.is_sigmoid)? {
        config.attentions().for_each(|attention| attention.head_norm = None);
    } else if fields.flag("use_rmsnorm")? == Some(false) {
        return Err(fields.invalid("use_rmsnorm", "true: norms of heads are RMS norms"));
    }
    if let Some(size) = fields.size("rotary_dim")? {
        let ropes = config.attentions().filter_map(|attention| attention.rope.as_ref());
        if let Some(other) = ropes.map(|rope| rope.rotary_dim).find(|known| *known != size) {
            let expected = format!("{other}, as partial_rotary_factor says");
            return Err(fields.invalid("rotary_dim", &expected));
        }
    }
    let has_unit_head = fields.flag("norm_head")?.unwrap_or(false);
    config.unit_head = has_unit_head.then_some(UnitVectors::Columns);
    if has_unit_head && config.tie_word_embeddings {
        return Err(fields.invalid("norm_head", "false beside tie_word_embeddings"));
    }
    let moe = experts(fields, config, rules)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(0);
    let first = fields.count("first_k_dense_replace")?.unwrap_or(rules.first_sparse);
    config.set_experts(fields, &moe, |layer| layer >= first)
}

/// Rejects fields whose effects differ between the authors' code and vLLM, or are not supported.
fn refuse(fields: &Fields) -> Result<(), ConfigError> {
    for field in ["use_bias", "use_sliding_window"] {
        if fields.flag(field)?.unwrap_or(false) {
            return Err(fields.invalid(field, "false"));
        }
    }
    Ok(())
}

/// Reads the experts. They have a bias for the choice beside sigmoid scores, and only there.
fn experts(fields: &Fields, config: &ModelConfig, rules: &Rules) -> Result<MoeConfig, ConfigError> {
    const SCORES: &str = "score_function";
    const BIAS: &str = "moe_router_enable_expert_bias";
    let is_sigmoid = match fields.text(SCORES)? {
        None => rules.is_sigmoid,
        Some("softmax") => false,
        Some("sigmoid") => true,
        Some(_) => return Err(fields.invalid(SCORES, "\"softmax\" or \"sigmoid\"")),
    };
    if fields.flag_or(BIAS, is_sigmoid)? != is_sigmoid {
        return Err(fields.invalid(BIAS, &format!("{is_sigmoid}, by the scores of experts")));
    }
    let num_experts = fields.required_size("num_experts")?;
    let intermediate_size = fields.required_size("moe_intermediate_size")?;
    let num_shared = fields.count("num_shared_experts")?.unwrap_or(rules.num_shared);
    let of_shared = fields.size("moe_shared_expert_intermediate_size")?;
    let of_shared = match of_shared {
        Some(width) if rules.has_whole_width && num_shared > 0 => width,
        width => num_shared * width.unwrap_or(intermediate_size),
    };
    let scored = match is_sigmoid {
        true => MoeConfig::of_sigmoids(config, num_experts),
        false => MoeConfig {
            num_experts,
            scoring: Scoring::Softmax,
            group_scoring: GroupScoring::Max,
            ..MoeConfig::of_dense(config)
        },
    };
    Ok(MoeConfig {
        top_k: fields.required_size("num_experts_per_tok")?,
        intermediate_size,
        renormalize: fields.flag_or("norm_topk_prob", true)?,
        groups: MoeConfig::groups_or(fields, rules.groups)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: (num_shared > 0)
            .then_some(SharedExpert { intermediate_size: of_shared, has_gate: false }),
        ..scored
    })
}
