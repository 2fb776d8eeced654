//! `config.json` as the engine uses it.

mod embedding;
mod norms;
mod tables;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

pub use self::embedding::EmbeddingConfig;
pub(crate) use self::embedding::{EmbeddingProjections, SumProjection, TokenTypes};
pub use self::norms::NormConfig;
pub(crate) use self::norms::{NormedResidual, OtherNorms};
pub(crate) use self::tables::TABLE_PARTS;
use super::file::Fields;
use super::source::{ConfigSource, architecture};
use super::{
    ActivationName, AltUpConfig, AttentionConfig, ConfigError, FeedForward, Gemma4Config,
    HyperConfig, LayerConfig, MediaTokens, MlpConfig, NgptConfig, Passes, SharedBlocks,
    SkipConnection, causality, layer, max_model_len, quantization, unsupported, wrapped,
};
use crate::model::families::{self, Entry};
use crate::model::family::{Defaults, Family, LayerNorms, TextPlace, WeightNames};
use crate::model::wrapper::{Wrapped, Wrapper};
use crate::weights::{
    Checkpoint, MergedAdapter, Quantization, StoredDtype, TaskAdapters, UnitVectors,
};

/// The shape of a model: `config.json` with every default filled in and every value checked.
///
/// Field names are those of `config.json`. Settings that differ by layer are in `layers`. The rules
/// that transformers hard-codes for a family are resolved here: Qwen2 always has q, k and v biases.
/// So no code below depends on the family.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family that `architectures` names.
    pub(crate) family: &'static Family,
    /// The multimodal class that has the model as its text part, if there is one.
    pub(crate) wrapped: Option<Wrapped>,
    /// Rows of the embedding; also the number of logits of a token.
    pub vocab_size: usize,
    /// The last tokens of the vocabulary: those of prompts alone, without rows in the output layer.
    pub(crate) num_unscored: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// The names of its tensors in the checkpoint.
    pub(crate) names: WeightNames,
    /// The same model as a Hugging Face folder has it, if this one describes a GGUF file.
    pub(crate) original: Option<Arc<ModelConfig>>,
    /// The reason why no adapter fits the weights, if there is one.
    pub(crate) adapters_refused: Option<&'static str>,
    /// The norms of hidden states.
    pub norm: NormConfig,
    /// The norms that each layer has.
    pub(crate) norms: LayerNorms,
    /// The norms of some layers, if they differ from those.
    pub(crate) other_norms: Option<OtherNorms>,
    /// Whether attention and the feed-forward part of a layer read the same hidden state.
    pub is_parallel: bool,
    /// The path from tokens to the first layer.
    pub embedding: EmbeddingConfig,
    /// Whether the norms after the parts of a layer follow the sums with the residual stream.
    pub is_post_norm: bool,
    /// Whether the first layer has a norm before its attention, if the others have one.
    pub(crate) has_first_norm: bool,
    /// Whether the last hidden states are normalised.
    pub has_final_norm: bool,
    /// The factor of the outputs of attention and feed-forward parts.
    pub residual_multiplier: f32,
    /// Several residual streams and embeddings of each layer, in families that have them.
    pub altup: Option<AltUpConfig>,
    /// The parts of Gemma 4's decoder, in models that have it.
    pub gemma4: Option<Gemma4Config>,
    /// Several residual streams with gates, in families that have them.
    pub hyper_connections: Option<HyperConfig>,
    /// Whether the outputs of a layer's experts are added after the next layer, whose mixer and MLP
    /// do not read them.
    pub(crate) has_shortcuts: bool,
    /// The passes through the layers.
    pub(crate) passes: Passes,
    /// The vectors of a normalized transformer.
    pub(crate) ngpt: Option<NgptConfig>,
    /// The layers whose inputs are mixed with those of earlier ones, in order.
    pub(crate) skips: Vec<SkipConnection>,
    /// Blocks that several layers share, in families that have them.
    pub shared_blocks: Option<SharedBlocks>,
    /// The factors of a stream that goes on with normalised hidden states, in families that have
    /// it.
    pub(crate) normed_residual: Option<NormedResidual>,
    /// The path from the last hidden state to logits, after the output layer.
    pub logits: LogitsConfig,
    /// Whether the output layer is loaded.
    pub(crate) has_lm_head: bool,
    /// The vectors of the output layer that are divided by their norms as it is read.
    pub(crate) unit_head: Option<UnitVectors>,
    /// Whether rows of the output layer are the classifier.
    pub(crate) is_classified_by_output: bool,
    /// The tensors that only the pooler has, with their shapes.
    pub(crate) pooler_tensors: Vec<(String, Vec<usize>)>,
    /// The names of tensors that the pooler reads if the checkpoint has them, and of those whose
    /// shapes the checkpoint decides.
    pub(crate) optional_pooler_tensors: Vec<String>,
    /// Whether the output layer uses the matrix of the embedding.
    pub tie_word_embeddings: bool,
    /// The layers, first layer first.
    pub layers: Vec<LayerConfig>,
    /// Whether a checkpoint may lack the biases of the choice of experts, which are then zero.
    pub(crate) may_lack_correction_bias: bool,
    /// The adapters of tasks that matrices of the checkpoint have.
    pub(crate) task_adapters: Option<TaskAdapters>,
    /// An adapter that is added to matrices of the checkpoint as they are read.
    pub(crate) merged_adapter: Option<MergedAdapter>,
    /// Layers of the checkpoint after the last, which predict several tokens a step and are not
    /// read.
    pub(crate) num_nextn_layers: usize,
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

/// `cap · tanh(logit · multiplier / divisor / cap)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogitsConfig {
    /// The factor of logits.
    pub multiplier: f32,
    /// The divisor of logits.
    pub divisor: f32,
    /// The cap of their absolute values.
    pub soft_cap: Option<f32>,
    /// Whether the output layer has a bias.
    pub has_bias: bool,
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

    /// Returns the width of the last hidden states, which is that of the output layer's inputs.
    pub(crate) fn embedding_width(&self) -> usize {
        self.embedding.projections.map_or(self.hidden_size, |projections| projections.width)
    }

    /// Returns the width of the tokens' embeddings.
    pub(crate) fn table_width(&self) -> usize {
        let of_sum = self.embedding.sum_projection.map(|projection| projection.width);
        of_sum.unwrap_or_else(|| self.embedding_width())
    }

    /// Returns the width of positions and types, and of the norm of the sum.
    pub(crate) fn summed_width(&self) -> usize {
        self.embedding.sum_projection.map_or(self.hidden_size, |projection| projection.width)
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
        let supported = families::architectures();
        let entry = match architecture(&source.fields, &supported) {
            Ok(name) => families::by_architecture(name).ok_or_else(|| {
                source.fields.unsupported_family("architectures", name, &supported)
            })?,
            // It may be a multimodal class with another head.
            Err(error) => {
                let listed = source.fields.value("architectures").and_then(Value::as_array);
                let name = listed.and_then(|names| names.first()?.as_str());
                Entry::Wrapper(name.and_then(families::wrapper_of).ok_or(error)?)
            }
        };
        Self::of_entry(source, entry, max_model_len)
    }

    /// Reads the config of a model whose entry of `architectures` is `entry`.
    pub(crate) fn of_entry(
        source: &ConfigSource,
        entry: Entry,
        requested_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
        match entry {
            Entry::Family(family) => Self::of_family(source, family, requested_len),
            Entry::Wrapper(wrapper) => Self::of_wrapper(&source.fields, wrapper, requested_len),
        }
    }

    /// Reads the config of the text model of a multimodal class.
    fn of_wrapper(
        outer: &Fields,
        wrapper: &'static Wrapper,
        requested_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
        let (fields, wrapped) = wrapped::text_of(outer, wrapper)?;
        let mut config = Self::from_fields(&fields, &wrapped.text.family, requested_len)?;
        config.names.place = wrapper.places.first().copied();
        // As vLLM, that of the text model counts where the file has no other.
        config.quantization = quantization::read(outer)?.or(config.quantization);
        config.wrapped = Some(wrapped);
        if let (None, Some(usual)) = (requested_len, families::usual_length(wrapper)) {
            config.max_model_len = config.max_model_len.min(usual);
        }
        if let Some(gemma4) = &mut config.gemma4 {
            gemma4.media_tokens = Some(MediaTokens::read(outer, &fields, config.vocab_size)?);
        }
        Ok(config)
    }

    fn of_family(
        source: &ConfigSource,
        family: &'static Family,
        requested_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
        let family = families::of_model_type(family, source.fields.text("model_type")?);
        let family = families::encoders::of_fields(family, &source.fields)?;
        let mut config = Self::from_fields(&source.fields, family, requested_len)?;
        if let Some(layout) = &source.layout {
            layout.apply(&mut config);
        }
        Ok(config)
    }

    /// Returns the config with what the checkpoint decides.
    pub(crate) fn fit(mut self, checkpoint: &Checkpoint) -> Self {
        match self.wrapped.clone() {
            Some(wrapped) => wrapped.fit(&mut self, checkpoint),
            None => self.names.place = self.place_in(checkpoint),
        }
        self.fit_norms(checkpoint);
        if self.may_lack_correction_bias {
            self.fit_correction_biases(checkpoint);
        }
        if let Some(names) = self.family.other_names {
            let is_stored = |module: &str| {
                let known = format!("{}.weight", self.names.of_layer(0, module));
                checkpoint.names().any(|name| *name == known)
            };
            let outputs = [self.names.attention.o_proj, self.names.mlp.down_proj];
            if !outputs.into_iter().all(is_stored) {
                self.names = *names;
                // Norms that the config has moved stay there.
                if self.norms == self.family.names.norms {
                    self.norms = names.norms;
                }
                let rule = names.attention.q_norm.map(|_| self.family.head_norm);
                for own in self.attentions().map(|attention| &mut attention.head_norm) {
                    *own = rule.map(|rule| own.unwrap_or(rule));
                }
            }
        }
        self.embedding.table_parts = self.table_parts_in(checkpoint);
        self
    }

    /// Takes the biases of the choice from layers without such a tensor.
    fn fit_correction_biases(&mut self, checkpoint: &Checkpoint) {
        let names = self.names;
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let name = names.of_layer(index, names.moe.correction_bias);
            if let FeedForward::Moe(moe) = &mut layer.feed_forward
                && checkpoint.shape(&name).is_none()
            {
                moe.correction_bias = None;
            }
        }
    }

    /// Returns the place of a text model whose class is that of text alone. transformers writes one
    /// that it has read from a multimodal checkpoint with the names of that checkpoint.
    fn place_in(&self, checkpoint: &Checkpoint) -> Option<TextPlace> {
        let others: &[TextPlace] = match self.names.base() {
            "model" => &[TextPlace::INSIDE],
            _ => &[],
        };
        let is_stored = |place: Option<TextPlace>| {
            let names = WeightNames { place, ..self.names };
            let table = names.stored(names.embed_tokens);
            checkpoint.shape(&format!("{table}.weight")).is_some()
        };
        let own = self.names.place;
        let mut others = others.iter().filter(|_| !is_stored(own));
        others.find(|place| is_stored(Some(**place))).copied().or(own)
    }

    /// Returns the attention of each layer that has one.
    pub(crate) fn attentions(&mut self) -> impl Iterator<Item = &mut AttentionConfig> {
        self.layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut())
    }

    /// Returns the first layer of the KV cache that layer `index` uses.
    pub(crate) fn first_kv_layer(&self, index: usize) -> usize {
        self.layers[..index].iter().map(|layer| layer.mixer.num_kv_layers()).sum()
    }

    /// Returns the dense feed-forward parts.
    pub(crate) fn mlps(&mut self) -> impl Iterator<Item = &mut MlpConfig> {
        self.layers.iter_mut().filter_map(|layer| match &mut layer.feed_forward {
            FeedForward::Mlp(mlp) => Some(mlp),
            FeedForward::Moe(_) | FeedForward::None => None,
        })
    }

    /// Sets the activation of all layers by its name in transformers. Returns whether there is one
    /// of that name.
    pub(crate) fn set_activation(&mut self, name: &str) -> bool {
        let Some(activation) = ActivationName::from_name(name) else { return false };
        self.mlps().for_each(|mlp| mlp.activation = activation);
        true
    }

    fn from_fields(
        config: &Fields,
        family: &'static Family,
        requested_len: Option<usize>,
    ) -> Result<Self, ConfigError> {
        let config = &config.with_aliases(family.aliases);
        check_model_type(config, family)?;
        unsupported::refuse(config, family.harmless_fields)?;
        let max_position_embeddings = num_positions(config, family)?;
        let layers = layer::read(config, family, max_position_embeddings)?;
        let max_model_len =
            max_model_len::resolve(config, &layers, max_position_embeddings, requested_len)?;
        let Defaults { tie_word_embeddings, norm_eps, .. } = family.defaults;
        let eps = config.positive(family.norm.eps)?.unwrap_or(norm_eps) as f32;
        let mut model = Self {
            family,
            wrapped: None,
            vocab_size: config.required_size("vocab_size")?,
            num_unscored: 0,
            hidden_size: config.required_size("hidden_size")?,
            names: family.names,
            original: None,
            adapters_refused: None,
            norm: NormConfig { kind: family.norm.kind, eps },
            norms: family.names.norms,
            other_norms: None,
            is_parallel: family.is_parallel,
            is_post_norm: false,
            has_first_norm: true,
            has_final_norm: true,
            embedding: EmbeddingConfig {
                multiplier: 1.0,
                table_parts: None,
                input_multiplier: 1.0,
                learned_positions: None,
                token_types: None,
                has_norm: false,
                is_summed_before_norm: false,
                projections: None,
                task_types: None,
                sum_projection: None,
            },
            residual_multiplier: 1.0,
            normed_residual: None,
            altup: None,
            gemma4: None,
            hyper_connections: None,
            has_shortcuts: false,
            passes: Passes::ONE,
            ngpt: None,
            skips: Vec::new(),
            shared_blocks: None,
            logits: LogitsConfig { multiplier: 1.0, divisor: 1.0, soft_cap: None, has_bias: false },
            has_lm_head: true,
            unit_head: None,
            is_classified_by_output: false,
            pooler_tensors: Vec::new(),
            optional_pooler_tensors: Vec::new(),
            tie_word_embeddings: config.flag("tie_word_embeddings")?.unwrap_or(tie_word_embeddings),
            layers,
            may_lack_correction_bias: false,
            task_adapters: None,
            merged_adapter: None,
            num_nextn_layers: 0,
            max_position_embeddings,
            max_model_len,
            dtype: stored_dtype(config)?,
            quantization: quantization::read(config)?,
            bos_token_id: config.token_ids("bos_token_id")?.first().copied(),
            eos_token_ids: config.token_ids("eos_token_id")?,
        };
        (family.adjust)(config, &mut model)?;
        causality::apply(config, family, &mut model)?;
        Ok(model)
    }
}

/// Returns the number of positions: the field `max_position_embeddings`, in some families without
/// the rows that no position has.
fn num_positions(config: &Fields, family: &Family) -> Result<usize, ConfigError> {
    const FIELD: &str = "max_position_embeddings";
    let rows = config.positions(FIELD)?.unwrap_or(family.defaults.max_position_embeddings);
    let unused = family.positions.unused_rows(config)?;
    let positions = rows.checked_sub(unused).filter(|positions| *positions > 0);
    positions.ok_or_else(|| {
        config.invalid(FIELD, &format!("more than the {unused} rows that no position has"))
    })
}

/// Checks that `model_type` and `architectures` agree. transformers chooses the class of a model by
/// `model_type`, vLLM by `architectures`.
fn check_model_type(config: &Fields, family: &Family) -> Result<(), ConfigError> {
    match config.text("model_type")? {
        None => Ok(()),
        Some(model_type) if families::is_model_type(family, model_type) => Ok(()),
        Some(_) => {
            let expected =
                format!("\"{}\", as `architectures` is {}", family.model_type, family.architecture);
            Err(config.invalid("model_type", &expected))
        }
    }
}

/// Reads the field `dtype` of transformers 5, or `torch_dtype` of transformers 4.
pub(in crate::model) fn stored_dtype(config: &Fields) -> Result<Option<StoredDtype>, ConfigError> {
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
