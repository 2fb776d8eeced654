//! Gemma 3, text only: HF `Gemma3ForCausalLM`.
//!
//! Gemma 2 with norms over query and key heads in place of the caps. Five layers of six have a
//! sliding window, and a rotary embedding of their own (<https://arxiv.org/abs/2503.19786>).
//! EmbeddingGemma has attention to both sides (<https://arxiv.org/abs/2509.20354>).

use super::{
    AttentionNames, ConfigError, Defaults, Family, Fields, HeadNormRule, ModelConfig, RopeRule,
    SlidingRope, WeightNames, WindowRule, gemma2, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Gemma3ForCausalLM",
    model_type: "gemma3_text",
    models: "Gemma 3, text only",
    defaults: Defaults {
        max_position_embeddings: 131_072,
        rope_theta: 1_000_000.0,
        ..gemma2::FAMILY.defaults
    },
    windows: WindowRule::AllButEvery { period: 6, field: Some("sliding_window_pattern") },
    head_norm: HeadNormRule::RmsPlusOne,
    rope: RopeRule {
        sliding: Some(SlidingRope { theta: Some("rope_local_base_freq"), default: 10_000.0 }),
        ..llama::ROPE
    },
    names: WeightNames {
        attention: AttentionNames {
            q_norm: Some("self_attn.q_norm"),
            k_norm: Some("self_attn.k_norm"),
            ..gemma2::NAMES.attention
        },
        ..gemma2::NAMES
    },
    adjust,
    ..gemma2::FAMILY
};

pub(super) fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    gemma2::common(fields, config)?;
    if fields.flag("use_bidirectional_attention")? == Some(true) {
        // A window then has half of its tokens on each side.
        for attention in config.attentions() {
            attention.is_causal = false;
            attention.sliding_window = attention.sliding_window.map(|window| window / 2 + 1);
        }
    }
    // HF's class and vLLM's have the field `attn_logit_softcapping`, too, and do not apply it.
    config.logits.soft_cap = fields.positive("final_logit_softcapping")?.map(|cap| cap as f32);
    Ok(())
}
