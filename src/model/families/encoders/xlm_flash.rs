//! XLM-RoBERTa with rotary embeddings, as the code in the folders of Jina's authors has it
//! (`xlm-roberta-flash-implementation`, <https://arxiv.org/abs/2408.16672>).
//!
//! [`jina`] is its transformers form. With learned positions, the same code is [`roberta`] with
//! other names (Jina Reranker 2).

use super::{
    ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields, ModelConfig, RopeRule,
    WeightNames, attend_to_both_sides, jina, llama, norm_after_sums, require_flag, require_number,
    roberta, sum_embeddings,
};
use crate::weights::TaskAdapters;

/// The value of `position_embedding_type` of these models.
pub(super) const POSITIONS: &str = "rotary";

/// The activations of the class, by `hidden_act`.
const ACTIVATIONS: [&str; 4] = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"];

pub(super) const FAMILY: Family = Family {
    architecture: "XLMRobertaModel",
    model_type: "xlm-roberta",
    models: "JinaColBERT 2, Jina Embeddings 3 in its authors' form",
    defaults: Defaults {
        intermediate_size: Some(3_072),
        max_position_embeddings: 512,
        rope_theta: 10_000.0,
        norm_eps: 1e-12,
        ..jina::FAMILY.defaults
    },
    rope: RopeRule { theta: "rotary_emb_base", ..llama::ROPE },
    names: jina::OF_THE_AUTHORS,
    other_names: None,
    adjust,
    ..jina::FAMILY
};

/// The names of a model with learned positions.
pub(super) const WITH_POSITIONS: WeightNames = WeightNames {
    embed_positions: roberta::FAMILY.names.embed_positions,
    lm_head: roberta::FAMILY.names.lm_head,
    ..jina::OF_THE_AUTHORS
};

pub(super) const CLASSES: &[EncoderClass] = &[
    // vLLM's name of the class that the folder calls `HF_ColBERT`.
    EncoderClass {
        architecture: "ColBERTJinaRobertaModel",
        family: &FAMILY,
        head: EncoderHead::TokenVectors { module: "linear", other: None, has_bias: Some(false) },
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Without the field, the class has learned positions.
    if fields.text("position_embedding_type")? != Some(POSITIONS) {
        return Err(fields.invalid("position_embedding_type", "\"rotary\""));
    }
    // Fields whose other values change the results.
    require_flag(fields, "rotary_emb_interleaved", false)?;
    if fields.value("rotary_emb_scale_base").is_some() {
        return Err(fields.invalid("rotary_emb_scale_base", "null: positions are not scaled"));
    }
    let activation = fields.text("hidden_act")?.unwrap_or("gelu");
    if !ACTIVATIONS.contains(&activation) {
        return Err(fields.invalid("hidden_act", &ACTIVATIONS.join(", ")));
    }
    if let Some(attention) = config.attentions().next() {
        require_number(fields, "rotary_emb_dim", attention.head_dim as f64)?;
    }
    config.task_adapters = task_adapters(fields)?;
    sum_embeddings(fields, config, Some(("roberta.embeddings.token_type_embeddings", 2)))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    Ok(())
}

/// Reads the adapters of tasks. `default_task`, an argument in the authors' code, chooses one.
/// Without it, matrices stay as they are.
fn task_adapters(fields: &Fields) -> Result<Option<TaskAdapters>, ConfigError> {
    const TASKS: &str = "lora_adaptations";
    const CHOSEN: &str = "default_task";
    let tasks = fields.texts(TASKS)?;
    let chosen = fields.text(CHOSEN)?.map(|task| {
        let index = tasks.iter().position(|known| *known == task);
        let accepted = format!("one of {TASKS}: {}", tasks.join(", "));
        index.ok_or_else(|| fields.invalid(CHOSEN, &accepted))
    });
    let chosen = chosen.transpose()?;
    if tasks.is_empty() {
        return Ok(None);
    }
    let rank = fields.size("lora_rank")?.unwrap_or(4);
    let scale = (fields.positive("lora_alpha")?.unwrap_or(1.0) / rank as f64) as f32;
    Ok(Some(TaskAdapters { count: tasks.len(), rank, scale, chosen }))
}
