//! Multi-head latent attention: HF `DeepseekV3Attention`.

use super::{TemperatureConfig, heads};
use crate::model::config::file::{Fields, SIZE_MAX};
use crate::model::config::{ConfigError, RopeParameters, rope};
use crate::model::family::{Bias, Family, LatentNames, LatentRule};

/// The number added to the mean squares in the norms of low-rank queries and of latents. HF takes
/// the default of its norms there, and not the model's `rms_norm_eps`.
const NORM_EPS: f32 = 1e-6;

/// Attention whose keys and values are expanded from one latent vector a token
/// (<https://arxiv.org/abs/2405.04434>). The KV cache holds the latent and a key that all heads
/// share.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentConfig {
    /// Query heads. Each has a key and a value of its own.
    pub num_heads: usize,
    /// The width between the two projections of queries. `None`: one projection.
    pub q_lora_rank: Option<usize>,
    /// The width of a latent.
    pub kv_lora_rank: usize,
    /// Elements of a query, and of a key, that do not depend on positions.
    pub qk_nope_head_dim: usize,
    /// Elements of a query that rotate, and of the key that all heads share.
    pub qk_rope_head_dim: usize,
    /// Elements of a value.
    pub v_head_dim: usize,
    /// The rotary embedding.
    pub rope: RopeParameters,
    /// Whether the first projections and the output projection have biases.
    pub bias: bool,
    /// The factor of scores.
    pub scale: f32,
    /// The number added to the mean squares of low-rank queries and latents.
    pub norm_eps: f32,
    /// The factors of low-rank queries and of latents, after their norms.
    pub norm_scales: [f32; 2],
    /// The module of a gate of each head's output, before its sigmoid.
    pub(crate) gate: Option<&'static str>,
    /// The factor of queries, by position.
    pub temperature: Option<TemperatureConfig>,
    /// The tokens that an indexer chooses for each query, in a model that has one (DeepSeek Sparse
    /// Attention). Contexts are at most as long, so each query has all tokens.
    pub index_topk: Option<usize>,
    /// Whether a token attends to no token after it.
    pub is_causal: bool,
    pub(crate) names: &'static LatentNames,
}

impl LatentConfig {
    /// Returns the elements of a token's queries.
    pub(crate) fn q_size(&self) -> usize {
        self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
    }

    /// Returns the elements of a token in the KV cache.
    pub(crate) fn cached_size(&self) -> usize {
        self.kv_lora_rank + self.qk_rope_head_dim
    }

    /// Returns the elements of the expanded keys and values of a token.
    pub(crate) fn kv_size(&self) -> usize {
        self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)
    }
}

/// Reads the latent attention of all layers of a model.
pub(super) fn read(
    config: &Fields,
    family: &Family,
    rule: &'static LatentRule,
    max_position_embeddings: usize,
) -> Result<LatentConfig, ConfigError> {
    let num_heads = heads::num_heads(config)?;
    if config.size("num_key_value_heads")?.is_some_and(|heads| heads != num_heads) {
        let expected = format!("num_attention_heads, {num_heads}: each head has its own key");
        return Err(config.invalid("num_key_value_heads", &expected));
    }
    let size =
        |field: &str, default: usize| Ok::<_, ConfigError>(config.size(field)?.unwrap_or(default));
    let even = |field: &str, size: usize| match size.is_multiple_of(2) {
        true => Ok(size),
        false => Err(config.invalid(field, "an even number")),
    };
    // Null means one projection. Only a config without the field takes the default.
    let q_lora_rank = match config.has("q_lora_rank") {
        true => config.size("q_lora_rank")?,
        false => rule.q_lora_rank,
    };
    let v_head_dim = match (config.size("v_head_dim")?, rule.v_head_dim) {
        (Some(size), _) => size,
        (None, Some(size)) if !config.has("v_head_dim") => size,
        (None, _) => config.required_size("hidden_size")? / num_heads,
    };
    let qk_rope_head_dim =
        even("qk_rope_head_dim", size("qk_rope_head_dim", rule.qk_rope_head_dim)?)?;
    let latent = LatentConfig {
        num_heads,
        q_lora_rank,
        kv_lora_rank: even("kv_lora_rank", size("kv_lora_rank", rule.kv_lora_rank)?)?,
        qk_nope_head_dim: size("qk_nope_head_dim", rule.qk_nope_head_dim)?,
        qk_rope_head_dim,
        v_head_dim,
        rope: read_rope(config, family, rule, qk_rope_head_dim, max_position_embeddings)?,
        bias: super::bias(config, Bias::IfSet("attention_bias"))?,
        scale: 1.0,
        norm_eps: NORM_EPS,
        norm_scales: [1.0; 2],
        gate: None,
        temperature: None,
        index_topk: None,
        is_causal: true,
        names: &rule.names,
    };
    // Stored matrices may have their rows in another order, which is a list of all rows.
    let widest = latent.q_size().max(latent.kv_size()).max(num_heads * latent.cached_size());
    if widest > SIZE_MAX {
        let expected = format!("at most {SIZE_MAX} elements in all heads together");
        return Err(config.invalid("num_attention_heads", &expected));
    }
    let head_dim = (latent.qk_nope_head_dim + qk_rope_head_dim) as f64;
    let scale = head_dim.sqrt().recip() * rope::score_factor(config, &latent.rope)?;
    Ok(LatentConfig { scale: scale as f32, ..latent })
}

/// Reads the rotary embedding, which turns all of the rotating elements.
fn read_rope(
    config: &Fields,
    family: &Family,
    rule: &LatentRule,
    rope_dim: usize,
    max_position_embeddings: usize,
) -> Result<RopeParameters, ConfigError> {
    let full = super::windows::FULL;
    let rope = rope::read(config, family, full, rope_dim, max_position_embeddings)?;
    let rope = rope.ok_or_else(|| config.missing("rope_parameters", "an object"))?;
    const PAIRS: &str = "rope_interleave";
    let is_interleaved = match (rule.has_rope_interleave, config.flag(PAIRS)?) {
        // Null is false there.
        (true, None) if config.has(PAIRS) => false,
        (true, Some(is_interleaved)) => is_interleaved,
        (false, Some(other)) if other != rope.is_interleaved => {
            return Err(config.invalid(PAIRS, &format!("{}", rope.is_interleaved)));
        }
        _ => rope.is_interleaved,
    };
    Ok(RopeParameters { is_interleaved, ..rope })
}
