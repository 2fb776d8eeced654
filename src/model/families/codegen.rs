//! CodeGen: HF `CodeGenForCausalLM`.
//!
//! GPT-J with one matrix for queries, keys and values, in the four parts that it was trained in
//! (<https://arxiv.org/abs/2203.13474>).

use super::{
    AttentionNames, ConfigError, Family, Fields, ModelConfig, QkvNames, WeightNames, gptj,
};

pub(super) const FAMILY: Family = Family {
    architecture: "CodeGenForCausalLM",
    model_type: "codegen",
    models: "CodeGen",
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Sharded("attn.qkv_proj"),
            ..gptj::FAMILY.names.attention
        },
        ..gptj::FAMILY.names
    },
    adjust,
    ..gptj::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (gptj::FAMILY.adjust)(fields, config)?;
    match config.attentions().all(|attention| attention.q_size().is_multiple_of(4)) {
        true => Ok(()),
        false => Err(fields.invalid("hidden_size", "a multiple of 4, the parts of its matrices")),
    }
}
