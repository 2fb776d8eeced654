//! Jina Embeddings 5, the small model for texts: the class `JinaEmbeddingsV5Model` of vLLM and of
//! its authors' folder.
//!
//! Qwen3 with the adapter of one task, which is merged at the start. Its attention is causal,
//! unlike that of encoders. The vector of a text is by default that of the last token.

use std::path::{Path, PathBuf};

use super::{
    ConfigError, EncoderClass, EncoderHead, Family, Fields, ModelConfig, PoolingField, qwen3,
    require_flag, require_text,
};
use crate::model::config::ConfigSource;
use crate::weights::MergedAdapter;

/// The tasks, the default one first. Each has a folder.
const TASKS: [&str; 4] = ["retrieval", "text-matching", "classification", "clustering"];

pub(super) const FAMILY: Family = Family {
    architecture: "JinaEmbeddingsV5Model",
    model_type: "jina_embeddings_v5",
    models: "Jina Embeddings 5 text small",
    adjust,
    ..qwen3::FAMILY
};

const POOLING: PoolingField =
    PoolingField { field: "pooling", default: "last", accepted: &["last"] };

pub(super) const CLASSES: &[EncoderClass] = &[EncoderClass {
    architecture: "JinaEmbeddingsV5Model",
    family: &FAMILY,
    head: EncoderHead::Pooled(POOLING),
}];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // vLLM's name of the setting.
    const TASK: &str = "jina_task";
    let task = fields.text(TASK)?.unwrap_or(TASKS[0]);
    if !TASKS.contains(&task) {
        return Err(fields.invalid(TASK, &format!("one of {}", TASKS.join(", "))));
    }
    let folder = fields.path().with_file_name("adapters").join(task);
    config.merged_adapter = Some(adapter(folder)?);
    (qwen3::FAMILY.adjust)(fields, config)
}

/// Reads the config of an adapter of PEFT.
fn adapter(folder: PathBuf) -> Result<MergedAdapter, ConfigError> {
    let fields = read(&folder)?;
    for field in ["use_rslora", "use_dora", "fan_in_fan_out", "lora_bias"] {
        require_flag(&fields, field, false)?;
    }
    require_text(&fields, "bias", "none")?;
    for field in ["rank_pattern", "alpha_pattern", "modules_to_save"] {
        let is_set = |value: &serde_json::Value| match value {
            serde_json::Value::Object(object) => !object.is_empty(),
            serde_json::Value::Array(list) => !list.is_empty(),
            _ => true,
        };
        if fields.value(field).is_some_and(is_set) {
            return Err(fields.invalid(field, "nothing: all matrices have the same rank"));
        }
    }
    let rank = fields.required_size("r")?;
    let scale = (fields.required_positive("lora_alpha")? / rank as f64) as f32;
    Ok(MergedAdapter { folder, rank, scale })
}

fn read(folder: &Path) -> Result<Fields, ConfigError> {
    ConfigSource::file(&folder.join("adapter_config.json"))
}
