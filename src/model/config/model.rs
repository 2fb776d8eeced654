//! `config.json` as the engine uses it.

use std::path::Path;

use serde_json::Value;

use super::file::Fields;
use super::{ConfigError, LayerConfig, gguf, layer, max_model_len, quantization, unsupported};
use crate::gguf::{GgufFile, is_gguf};
use crate::model::family::{self, Family};
use crate::weights::{Quantization, StoredDtype};

/// The shape of a model: `config.json` with every default filled in and every value checked.
///
/// Field names are those of `config.json`. What differs by layer is in `layers`. What transformers
/// hard-codes for a family (Qwen2 always has q, k and v biases) is resolved here, so that no code
/// below asks for the family.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family that `architectures` names.
    pub(crate) family: &'static Family,
    /// Rows of the embedding, and logits of a token.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f32,
    /// Whether the output layer is the embedding.
    pub tie_word_embeddings: bool,
    /// The layers, first layer first.
    pub layers: Vec<LayerConfig>,
    /// The context that positions were made for, before any scaling that goes beyond it.
    pub max_position_embeddings: usize,
    /// The longest context served, in tokens.
    pub max_model_len: usize,
    /// The dtype that the weights were meant for, where the config says.
    pub dtype: Option<StoredDtype>,
    /// How a Hugging Face folder stores the weights of linear layers, where not as floats.
    pub quantization: Option<Quantization>,
    /// The token put before a prompt, where there is one.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a sequence; `generation_config.json` may name more.
    pub eos_token_ids: Vec<u32>,
}

impl ModelConfig {
    /// Reads `config.json` of the folder `model`, or the metadata of the GGUF file `model`.
    ///
    /// # Errors
    /// As [`ModelConfig::from_dir`].
    pub fn of_model(model: &Path, max_model_len: Option<usize>) -> Result<Self, ConfigError> {
        match is_gguf(model) {
            true => gguf::read(&GgufFile::open(model)?, max_model_len),
            false => Self::from_dir(model, max_model_len),
        }
    }

    /// Reads `config.json` of `folder`. `max_model_len` shortens the context; without it the
    /// model's own is used.
    ///
    /// # Errors
    /// [`ConfigError`]: the file or a field is missing, malformed, or not supported.
    pub fn from_dir(folder: &Path, max_model_len: Option<usize>) -> Result<Self, ConfigError> {
        Self::from_fields(&Fields::read(&folder.join("config.json"))?, max_model_len)
    }

    /// The entry of `architectures` that the model is served as.
    #[must_use]
    pub fn architecture(&self) -> &'static str {
        self.family.architecture
    }

    pub(super) fn from_fields(
        config: &Fields,
        requested_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
        let family = architecture(config)?;
        check_model_type(config, family)?;
        unsupported::refuse(config)?;
        let max_position_embeddings = config
            .positions("max_position_embeddings")?
            .unwrap_or(family.defaults.max_position_embeddings);
        let layers = layer::read(config, family, max_position_embeddings)?;
        let max_model_len =
            max_model_len::resolve(config, &layers, max_position_embeddings, requested_len)?;
        Ok(Self {
            family,
            vocab_size: config.required_size("vocab_size")?,
            hidden_size: config.required_size("hidden_size")?,
            rms_norm_eps: config.positive("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            tie_word_embeddings: config.flag("tie_word_embeddings")?.unwrap_or(false),
            layers,
            max_position_embeddings,
            max_model_len,
            dtype: dtype(config)?,
            quantization: quantization::read(config)?,
            bos_token_id: config.token_ids("bos_token_id")?.first().copied(),
            eos_token_ids: config.token_ids("eos_token_id")?,
        })
    }
}

/// The family of the one architecture in the list.
fn architecture(config: &Fields) -> Result<&'static Family, ConfigError> {
    let supported = family::architectures().join(", ");
    let expected = format!("a list with one of {supported}");
    let listed =
        config.value("architectures").ok_or_else(|| config.missing("architectures", &expected))?;
    let names: Vec<_> = listed.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let family = names.iter().find_map(|name| family::by_architecture(name));
    let family = family.ok_or_else(|| match names.is_empty() {
        true => config.invalid("architectures", &expected),
        false => config.unsupported_family("architectures", &supported),
    })?;
    // Two classes compute different things; which of them is meant, nothing says.
    if names.iter().any(|name| *name != family.architecture) {
        return Err(config.invalid("architectures", "a list of one class"));
    }
    Ok(family)
}

/// The class that transformers loads a model as is that of `model_type`; vLLM goes by `architectures`.
fn check_model_type(config: &Fields, family: &Family) -> Result<(), ConfigError> {
    match config.text("model_type")? {
        None => Ok(()),
        Some(model_type) if model_type == family.model_type => Ok(()),
        Some(_) => {
            let expected =
                format!("\"{}\", as `architectures` is {}", family.model_type, family.architecture);
            Err(config.invalid("model_type", &expected))
        }
    }
}

/// `dtype` of transformers 5, `torch_dtype` of transformers 4.
fn dtype(config: &Fields) -> Result<Option<StoredDtype>, ConfigError> {
    let field = if config.value("dtype").is_some() { "dtype" } else { "torch_dtype" };
    match config.text(field)? {
        None => Ok(None),
        Some("float32") => Ok(Some(StoredDtype::F32)),
        Some("float16") => Ok(Some(StoredDtype::F16)),
        Some("bfloat16") => Ok(Some(StoredDtype::Bf16)),
        Some(_) => Err(config.invalid(field, "\"float32\", \"float16\" or \"bfloat16\"")),
    }
}

#[cfg(test)]
mod tests;
