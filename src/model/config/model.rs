//! `config.json` as the engine uses it.

use std::path::Path;

use super::file::Fields;
use super::source::{ConfigSource, architecture};
use super::{
    ConfigError, FeedForward, LayerConfig, Mixer, layer, max_model_len, quantization, unsupported,
};
use crate::model::family::{self, Family};
use crate::weights::{Quantization, StoredDtype};

/// The shape of a model: `config.json` with every default filled in and every value checked.
///
/// Field names are those of `config.json`. Settings that differ by layer are in `layers`. The rules
/// that transformers hard-codes for a family are resolved here: Qwen2 always has q, k and v biases.
/// So no code below depends on the family.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family that `architectures` names.
    pub(crate) family: &'static Family,
    /// Rows of the embedding; also the number of logits of a token.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// The number added to the mean square in every norm.
    pub rms_norm_eps: f32,
    /// Whether the output layer uses the matrix of the embedding.
    pub tie_word_embeddings: bool,
    /// The layers, first layer first.
    pub layers: Vec<LayerConfig>,
    /// The field `max_position_embeddings`: the context in tokens before linear or dynamic scaling.
    pub max_position_embeddings: usize,
    /// The longest context served, in tokens.
    pub max_model_len: usize,
    /// The dtype that the weights were made for, if the config has it.
    pub dtype: Option<StoredDtype>,
    /// The format in which a Hugging Face folder stores the weights of linear layers, if quantized.
    pub quantization: Option<Quantization>,
    /// The token before a prompt, if there is one.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a sequence. `generation_config.json` may name more.
    pub eos_token_ids: Vec<u32>,
}

impl ModelConfig {
    /// Reads `config.json` of the folder `model`, or the metadata of the GGUF file `model`. The
    /// model must be of a family of this crate.
    ///
    /// # Errors
    /// As [`ModelConfig::from_dir`].
    pub fn of_model(model: &Path, max_model_len: Option<usize>) -> Result<Self, ConfigError> {
        Self::of_source(&ConfigSource::read(model)?, max_model_len)
    }

    /// Reads `config.json` of `folder`. `max_model_len` shortens the context, which is by default
    /// the model's.
    ///
    /// # Errors
    /// [`ConfigError`] if the file or a field is missing, malformed or not supported.
    pub fn from_dir(folder: &Path, max_model_len: Option<usize>) -> Result<Self, ConfigError> {
        Self::of_source(&ConfigSource::of_folder(folder)?, max_model_len)
    }

    /// Returns the entry of `architectures` that the model is served as.
    #[must_use]
    pub fn architecture(&self) -> &'static str {
        self.family.architecture
    }

    pub(super) fn of_source(
        source: &ConfigSource,
        max_model_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
        let supported = family::architectures();
        let name = architecture(&source.fields, &supported)?;
        let family = family::by_architecture(name).ok_or_else(|| {
            source.fields.unsupported_family("architectures", &supported.join(", "))
        })?;
        Self::of_family(source, family, max_model_len)
    }

    /// Reads the config of a model of `family`.
    pub(crate) fn of_family(
        source: &ConfigSource,
        family: &'static Family,
        requested_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::from_fields(&source.fields, family, requested_len)?;
        if let Some(biases) = source.biases {
            for LayerConfig { mixer, feed_forward } in &mut config.layers {
                let (Mixer::Attention(attention), FeedForward::GatedMlp(mlp)) =
                    (mixer, feed_forward);
                attention.qkv_bias = biases.qkv;
                attention.o_bias = biases.o;
                mlp.bias = biases.mlp;
            }
        }
        Ok(config)
    }

    fn from_fields(
        config: &Fields,
        family: &'static Family,
        requested_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
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

/// Checks that `model_type` and `architectures` agree. transformers chooses the class of a model by
/// `model_type`, vLLM by `architectures`.
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

/// Reads the field `dtype` of transformers 5, or `torch_dtype` of transformers 4.
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
