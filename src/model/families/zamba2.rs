//! Zamba2: HF `Zamba2ForCausalLM`.
//!
//! All layers have Mamba 2. Some use one of a few blocks of attention and an MLP before it, which
//! several layers share (<https://arxiv.org/abs/2411.15242>). A block reads the layer's input and
//! the embeddings of the tokens, and each use adds products of low rank to its matrices.

use super::{
    Bias, ConfigError, Defaults, Family, FeedForward, Fields, LayerConfig, LayerRule, Mamba2Fields,
    Mamba2Norm, Mixer, MixerKind, MlpRule, ModelConfig, ParallelConfig, SharedBlocks, bamba,
    inner_size, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Zamba2ForCausalLM",
    model_type: "zamba2",
    models: "Zamba2",
    defaults: Defaults {
        max_position_embeddings: 4_096,
        tie_word_embeddings: true,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::IfSet("add_bias_linear"),
    mlp: MlpRule { is_gated: true, field: "hidden_act", activation: "gelu" },
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Mamba2],
    names: bamba::NAMES,
    adjust,
    ..llama::FAMILY
};

const FIELDS: Mamba2Fields = Mamba2Fields {
    num_heads: ("n_mamba_heads", 8),
    head_dim: ("mamba_headdim", None),
    state_size: ("mamba_d_state", 64),
    num_groups: ("mamba_ngroups", 1),
    conv_kernel: ("mamba_d_conv", 4),
    conv_bias: ("use_conv_bias", true),
    in_bias: ("add_bias_linear", false),
    out_bias: ("add_bias_linear", false),
    activation: ("mamba_hidden_act", "silu"),
    norm_eps: None,
};

/// The number that HF's class adds to the mean squares of Mamba 2's outputs, whatever
/// `rms_norm_eps` is.
const MAMBA_NORM_EPS: f32 = 1e-5;

const KINDS: &str = "layers_block_type";
/// The layers with a block in HF's default, by their index.
const DEFAULT_USES: [usize; 9] = [6, 12, 18, 24, 30, 36, 42, 47, 51];
/// The number of layers in that default.
const DEFAULT_LAYERS: usize = 54;

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const HEADS: &str = "num_attention_heads";
    let hidden = fields.required_size("hidden_size")?;
    let num_heads = fields.required_size(HEADS)?;
    // A head of queries has its part of the hidden state and of the embeddings.
    if !hidden.is_multiple_of(num_heads) {
        return Err(fields.invalid(HEADS, &format!("a divisor of hidden_size, {hidden}")));
    }
    if fields.size("num_key_value_heads")?.is_some_and(|heads| heads != num_heads) {
        let expected = format!("{HEADS}, {num_heads}: each head has its own key");
        return Err(fields.invalid("num_key_value_heads", &expected));
    }
    let head_dim = 2 * hidden / num_heads;
    let mut mamba =
        FIELDS.read(fields, Some(inner_size(fields, ("mamba_expand", 2.0), hidden)?))?;
    if !mamba.conv_bias {
        return Err(fields.invalid(FIELDS.conv_bias.0, "true: HF's class has these biases always"));
    }
    mamba.norm =
        Some(Mamba2Norm { num_groups: mamba.num_groups, eps: MAMBA_NORM_EPS, before_gate: false });
    // HF gives this class no other limit.
    mamba.dt_limit = [fields.positive("time_step_min")?.unwrap_or(1e-3) as f32, f32::INFINITY];
    let mut own = fields.without(&["layer_types", KINDS]).with("head_dim", head_dim.into());
    if fields.size("intermediate_size")?.is_none() {
        own = own.with("intermediate_size", (4 * hidden).into());
    }
    let has_rope = fields.flag("use_mem_rope")?.unwrap_or(false);
    let uses = uses(fields)?;
    let mut layers = read_alike(&own, family, max_position_embeddings)?;
    for (index, layer) in layers.iter_mut().enumerate() {
        let mamba = mamba.clone();
        match layer.mixer.attention().filter(|_| uses.contains(&index)) {
            Some(attention) => {
                let mut attention = attention.clone();
                attention.scale = (head_dim as f32 / 2.0).sqrt().recip();
                attention.rope = attention.rope.filter(|_| has_rope);
                let attention_multipliers = [1.0; 2];
                let both = ParallelConfig { attention, attention_multipliers, mamba };
                layer.mixer = Mixer::Parallel(both);
            }
            None => {
                let mixer = Mixer::Mamba2(mamba);
                *layer = LayerConfig { mixer, feed_forward: FeedForward::None };
            }
        }
    }
    Ok(layers)
}

/// Returns the layers that use a block.
fn uses(fields: &Fields) -> Result<Vec<usize>, ConfigError> {
    let count = fields.required_size("num_hidden_layers")?;
    let read = |field: &str| fields.layer_kinds(field, &["linear_attention", "hybrid"]);
    // The second one is another name of the list.
    let kinds = match read(KINDS)? {
        None => read("layer_types")?,
        kinds => kinds,
    };
    match kinds {
        Some(kinds) if kinds.len() == count => {
            Ok((0..count).filter(|index| kinds[*index] == 1).collect())
        }
        Some(_) => Err(fields.invalid(KINDS, &format!("a list of {count} (num_hidden_layers)"))),
        None if count == DEFAULT_LAYERS => Ok(DEFAULT_USES.into()),
        None => Err(fields.missing(KINDS, "a list of \"mamba\" or \"hybrid\"")),
    }
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.flag("use_long_context")?.unwrap_or(false) {
        let expected = "false: HF's class and vLLM's differ in long contexts";
        return Err(fields.invalid("use_long_context", expected));
    }
    if !config.tie_word_embeddings {
        let expected = "true: HF's class shares no blocks otherwise, and vLLM's always ties";
        return Err(fields.invalid("tie_word_embeddings", expected));
    }
    config.shared_blocks = Some(SharedBlocks {
        count: fields.size("num_mem_blocks")?.unwrap_or(1),
        rank: fields.size("adapter_rank")?.unwrap_or(128),
        has_attention_adapters: fields.flag("use_shared_attention_adapter")?.unwrap_or(false),
    });
    config.adapters_refused = Some("several of its layers share matrices");
    Ok(())
}
