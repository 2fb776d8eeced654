//! Baichuan and Baichuan 2: `BaichuanForCausalLM` of their folders' own code, and of vLLM 0.22.
//!
//! Llama with one matrix for queries, keys and values (<https://arxiv.org/abs/2309.10305>). The
//! models of 13B have ALiBi in place of rotary embeddings. The rows of Baichuan 2's output layer
//! are divided by their norms. As in vLLM, the class, the hidden size and the vocabulary tell the
//! models apart, because no field does.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, ModelConfig, QkvNames,
    WeightNames, bloom, llama,
};
use crate::weights::UnitVectors;

pub(super) const FAMILY: Family = Family {
    architecture: "BaichuanForCausalLM",
    model_type: "baichuan",
    models: "Baichuan 7B and 13B, Baichuan 2 7B and 13B",
    aliases: &[("model_max_length", "max_position_embeddings")],
    defaults: Defaults { max_position_embeddings: 4_096, ..llama::DEFAULTS },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Stacked("self_attn.W_pack"),
            ..llama::NAMES.attention
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

/// The class of the first 7B, whose models all rotate.
pub(super) const FIRST: &str = "BaiChuanForCausalLM";

/// The hidden size of models of 7B.
const SMALL: usize = 4_096;

/// The vocabulary of Baichuan 2.
const SECOND_VOCAB: usize = 125_696;

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if config.hidden_size != SMALL && !fields.texts("architectures")?.contains(&FIRST) {
        for attention in config.attentions() {
            attention.rope = None;
            attention.alibi = Some(bloom::slopes(attention.num_heads).into());
        }
    }
    if config.vocab_size == SECOND_VOCAB {
        if config.tie_word_embeddings {
            let expected = "false: the output layer is divided by norms";
            return Err(fields.invalid("tie_word_embeddings", expected));
        }
        config.unit_head = Some(UnitVectors::Rows);
    }
    Ok(())
}
