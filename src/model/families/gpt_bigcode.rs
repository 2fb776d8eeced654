//! StarCoder and SantaCoder: HF `GPTBigCodeForCausalLM`.
//!
//! GPT-2 with one head of keys and values, and matrices that are stored as `[outputs, inputs]`
//! (<https://arxiv.org/abs/2305.06161>).

use super::{
    AttentionNames, ConfigError, Family, Fields, MlpRule, ModelConfig, QkvNames, WeightNames, gpt2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GPTBigCodeForCausalLM",
    model_type: "gpt_bigcode",
    models: "StarCoder, SantaCoder",
    mlp: MlpRule { activation: "gelu_pytorch_tanh", ..gpt2::FAMILY.mlp },
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Grouped("attn.c_attn"),
            ..gpt2::FAMILY.names.attention
        },
        is_transposed: false,
        ..gpt2::FAMILY.names
    },
    adjust,
    ..gpt2::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    let is_scaled = fields.flag("scale_attn_weights")?.unwrap_or(true);
    let is_multi_query = fields.flag("multi_query")?.unwrap_or(true);
    for attention in config.attentions() {
        attention.num_kv_heads = if is_multi_query { 1 } else { attention.num_heads };
        if !is_scaled {
            attention.scale = 1.0;
        }
    }
    Ok(())
}
