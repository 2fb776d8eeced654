//! Nemotron-H, Nemotron Nano 2 and Nemotron 3: HF `NemotronHForCausalLM`.
//!
//! Each layer is one part: Mamba 2, attention without positions, an MLP with squared ReLU, or
//! experts (<https://arxiv.org/abs/2504.03624>). Experts have the form of the MLP, and a router as
//! in DeepSeek V3 (<https://arxiv.org/abs/2512.20848>).

use serde_json::Value;

use super::{
    AttentionNames, Bias, ConfigError, Defaults, ExpertNames, Family, FeedForward, Fields,
    LayerConfig, LayerNorms, LayerRule, Mamba2Fields, Mixer, MixerKind, MlpNames, MlpRule,
    ModelConfig, MoeConfig, MoeNames, MtpForm, NormKind, NormRule, PositionRule, QkvNames,
    SharedExpert, WeightNames, llama, mamba, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "NemotronHForCausalLM",
    model_type: "nemotron_h",
    models: "Nemotron-H, Nemotron Nano 2, Nemotron 3",
    // Names of older checkpoints.
    aliases: &[
        ("attention_head_dim", "head_dim"),
        ("mamba_n_groups", "n_groups"),
        ("mamba_d_conv", "conv_kernel"),
        ("mamba_dt_min", "time_step_min"),
        ("mamba_dt_limit", "time_step_limit"),
        ("mamba_conv_bias", "use_conv_bias"),
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: Some(21_504),
        max_position_embeddings: 4_096,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::IfSet("mlp_bias"),
    norm: NormRule { kind: NormKind::Rms, eps: "layer_norm_epsilon" },
    positions: PositionRule::None,
    mlp: MlpRule { is_gated: false, field: "mlp_hidden_act", activation: "relu2" },
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Mamba2],
    names: WeightNames {
        norms: LayerNorms { before_mlp: Some("norm"), ..mamba::NAMES.norms },
        attention: AttentionNames {
            qkv: QkvNames::Separate(["mixer.q_proj", "mixer.k_proj", "mixer.v_proj"]),
            o_proj: "mixer.o_proj",
            ..llama::NAMES.attention
        },
        mlp: MlpNames { inner: &["mixer.up_proj"], down_proj: "mixer.down_proj" },
        moe: MoeNames {
            router: "mixer.gate",
            correction_bias: "mixer.gate.e_score_correction_bias",
            experts: ExpertNames::Each {
                module: "mixer.experts",
                inner: &["up_proj"],
                down_proj: "down_proj",
            },
            shared: MlpNames {
                inner: &["mixer.shared_experts.up_proj"],
                down_proj: "mixer.shared_experts.down_proj",
            },
            latent: ["mixer.fc1_latent_proj", "mixer.fc2_latent_proj"],
            ..llama::MOE
        },
        ..mamba::NAMES
    },
    mtp: MtpForm::Parts,
    adjust,
    ..llama::FAMILY
};

const FIELDS: Mamba2Fields = Mamba2Fields {
    num_heads: ("mamba_num_heads", 128),
    head_dim: ("mamba_head_dim", Some(64)),
    state_size: ("ssm_state_size", 128),
    num_groups: ("n_groups", 8),
    conv_kernel: ("conv_kernel", 4),
    conv_bias: ("use_conv_bias", true),
    in_bias: ("use_bias", false),
    out_bias: ("use_bias", false),
    activation: ("mamba_hidden_act", "silu"),
    norm_eps: Some(("layer_norm_epsilon", 1e-5)),
};

/// The places of parts in [`LISTED`] and [`PATTERN`].
const MAMBA: usize = 0;
const ATTENTION: usize = 1;
const MLP: usize = 2;
pub(super) const EXPERTS: usize = 3;
const LISTED: [&str; 4] = ["linear_attention", "full_attention", "mlp", "moe"];
const PATTERN: [char; 4] = ['M', '*', '-', 'E'];

pub(super) fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let kinds = kinds(fields)?;
    let mut mamba = FIELDS.read(fields, None)?;
    // HF gives this class no other limit.
    mamba.dt_limit = [fields.positive("time_step_min")?.unwrap_or(1e-3) as f32, f32::INFINITY];
    let alike = fields
        .without(&["layer_types", "layers_block_type"])
        .with("num_hidden_layers", Value::from(kinds.len()));
    let layers = read_alike(&alike, family, max_position_embeddings)?;
    let of_kind = |(layer, kind): (LayerConfig, &usize)| match *kind {
        MAMBA => {
            let mixer = Mixer::Mamba2(mamba.clone());
            LayerConfig { mixer, feed_forward: FeedForward::None }
        }
        ATTENTION => LayerConfig { feed_forward: FeedForward::None, ..layer },
        _ => LayerConfig { mixer: Mixer::None, ..layer },
    };
    Ok(layers.into_iter().zip(&kinds).map(of_kind).collect())
}

/// Reads the part of each layer: `layers_block_type`, or `hybrid_override_pattern` of older
/// configs. Without both, there are four layers. `layer_types` is another name of the list.
fn kinds(fields: &Fields) -> Result<Vec<usize>, ConfigError> {
    const FIELD: &str = "hybrid_override_pattern";
    for list in ["layers_block_type", "layer_types"] {
        if let Some(kinds) = fields.layer_kinds(list, &LISTED)? {
            return Ok(kinds);
        }
    }
    let Some(pattern) = fields.text(FIELD)? else {
        return Ok(vec![MAMBA, EXPERTS, ATTENTION, MLP]);
    };
    let kind = |part: char| PATTERN.iter().position(|known| *known == part);
    let kinds: Option<Vec<usize>> = pattern.chars().map(kind).collect();
    let expected = "letters M (Mamba), * (attention), - (MLP) and E (experts)";
    kinds.filter(|kinds| !kinds.is_empty()).ok_or_else(|| fields.invalid(FIELD, expected))
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    refuse(fields, config)?;
    let kinds = kinds(fields)?;
    match kinds.contains(&EXPERTS) {
        true => config.set_experts(fields, &experts(fields, config)?, |i| kinds[i] == EXPERTS),
        false => Ok(()),
    }
}

/// Rejects fields that are not supported.
pub(super) fn refuse(fields: &Fields, config: &ModelConfig) -> Result<(), ConfigError> {
    // `attention_bias` has no effect in HF's class. A checkpoint with such biases is refused,
    // because nothing would read them.
    if config.tie_word_embeddings {
        return Err(fields.invalid("tie_word_embeddings", "false: HF's class ties nothing"));
    }
    if fields.numbers("time_step_limit", 2)?.is_some_and(|limit| limit != [0.0, f64::INFINITY]) {
        let expected = "[0, Infinity]: HF's class reads time_step_min alone";
        return Err(fields.invalid("time_step_limit", expected));
    }
    Ok(())
}

/// Reads the experts of all layers that have some: HF `NemotronHMoE`.
pub(super) fn experts(fields: &Fields, config: &ModelConfig) -> Result<MoeConfig, ConfigError> {
    let dense = MoeConfig::of_sigmoids(config, fields.size("num_experts")?.unwrap_or(8));
    let shared = match fields.count("moe_shared_expert_intermediate_size")? {
        // Zero is as false as null.
        Some(0) => dense.intermediate_size,
        shared => shared.unwrap_or(7_688),
    };
    Ok(MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(2),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(7_688),
        latent_size: fields.size("moe_latent_size")?,
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(true),
        groups: MoeConfig::groups(fields)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: Some(SharedExpert { intermediate_size: shared, has_gate: false }),
        ..dense
    })
}
