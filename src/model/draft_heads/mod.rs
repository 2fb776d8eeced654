//! Heads that guess tokens from the hidden states of the model that they were trained for.
//!
//! A head reads rows. Row `p` of a text has the hidden state of token `p`, which the model computed
//! before, and token `p + 1`. The row's state predicts token `p + 2`. For each further guess, the
//! head reads its own state and the last guess in their place.
//!
//! | method | state of a row with token `t` and hidden state `h` | logits |
//! |---|---|---|
//! | [`eagle`] | `layer(fc([embed(t), h]))` | `lm_head(state)` |
//! | [`eagle3`] | `layer([norm(embed(t)), norm(fc(h))])` | `lm_head(norm(state))` |
//! | [`mtp`] | `layer(eh_proj([norm(embed(t)), norm(h)]))` | `lm_head(norm(state))` |
//! | [`mtp`] of Qwen3-Next | `norm(layer(fc([norm(embed(t)), norm(h)])))` | `lm_head(state)` |
//! | [`mlp_speculator`] | `gelu(norm(proj(h) + a · embed(t)))` | `head(state)` |
//!
//! The formats are those that vLLM reads. A row of the first four also reads the rows before it,
//! through keys and values in a cache of the head. A wrong state makes wrong guesses and no wrong
//! output.

mod eagle;
mod eagle3;
mod facts;
mod mlp_speculator;
mod mtp;
mod parts;
mod speculators;

use std::path::Path;
use std::slice;
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{AttentionMetadata, KvCache, KvCacheShape};

pub(crate) use self::facts::DrafterFacts;
use self::parts::HeadLayers;
use super::config::ConfigSource;
use super::{
    Adapters, KvLayers, KvPlace, LoadOptions, LoadProgress, Model, ModelError, ModelSource,
    Positions, Step,
};
use crate::config::HeadMethod;

/// The hidden states of the model that a head reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadInput {
    /// Those after the final norm.
    Last,
    /// Those before the layers of these indices, which increase, side by side. The number of
    /// layers stands for those after the last one.
    BeforeLayers(Vec<usize>),
}

/// A head, loaded for its model.
pub struct DraftHead {
    /// The states of the model that it reads.
    pub input: HeadInput,
    /// The width of the model's hidden states.
    pub hidden_size: usize,
    /// The longest text that it reads, in tokens.
    pub max_model_len: usize,
    /// Most guesses after one token.
    pub max_guesses: usize,
    /// The layers of its KV cache. None of them has a state.
    pub kv_layers: KvLayers,
    places: Vec<KvPlace>,
    layers: Box<dyn HeadLayers>,
    device: Device,
}

/// Rows that a head reads in one pass.
#[derive(Debug)]
pub struct HeadRows<'a> {
    /// Number of guesses before this one. Those of the first pass have the model's hidden states.
    pub num_guesses: usize,
    /// The token after the row's own: `[num_rows]`.
    pub token_ids: &'a [u32],
    /// Hidden states of the model, `[num_rows, row_width]`, or states of the pass before,
    /// `[num_rows, state_width]`.
    pub states: Tensor<2>,
}

/// The parts of a head that a method loads.
struct Loaded {
    input: HeadInput,
    max_model_len: usize,
    max_guesses: usize,
    kv_layers: KvLayers,
    /// The layer of the head's cache for each layer of the config.
    places: Vec<KvPlace>,
    layers: Box<dyn HeadLayers>,
}

impl DraftHead {
    /// Returns the number of elements of a row of the model's hidden states.
    #[must_use]
    pub fn row_width(&self) -> usize {
        match &self.input {
            HeadInput::Last => self.hidden_size,
            HeadInput::BeforeLayers(layers) => self.hidden_size * layers.len(),
        }
    }

    /// Returns the shape of the head's KV cache.
    #[must_use]
    pub fn kv_cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape {
        self.kv_layers.cache_shape(num_blocks, block_size)
    }

    /// Returns rows of `values` as a tensor, `[values.len() / row_width, row_width]`.
    #[must_use]
    pub fn rows(&self, values: Vec<f32>) -> Tensor<2> {
        let width = self.row_width();
        let shape = [values.len() / width.max(1), width];
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// Returns the states of `rows`, `[num_rows, state_width]`, and writes their keys and values
    /// into the cache. The positions of `meta` are those of the rows.
    ///
    /// # Panics
    /// If `rows`, `meta` and the cache disagree, a token is outside the vocabulary, or a position
    /// is not less than `max_model_len`.
    #[must_use]
    pub fn forward(
        &self,
        rows: HeadRows<'_>,
        meta: &AttentionMetadata,
        cache: &mut KvCache,
    ) -> Tensor<2> {
        let mut step = Step::of_groups(slice::from_ref(meta), &self.places, cache);
        self.layers.forward(rows, Positions::of_text(meta), &mut step)
    }

    /// Returns the logits of some rows of `states`, `[rows.len(), vocab_size]` f32. A token that
    /// the head never guesses has the logit -∞. `num_guesses` is that of the pass.
    ///
    /// # Panics
    /// If a row is outside `states`.
    #[must_use]
    pub fn logits(&self, num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        self.layers.logits(num_guesses, states, rows)
    }

    /// Returns the bytes of weights that are pages of a file.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.layers.mapped_bytes()
    }
}

impl std::fmt::Debug for DraftHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DraftHead")
            .field("input", &self.input)
            .field("hidden_size", &self.hidden_size)
            .field("kv_layers", &self.kv_layers)
            .finish_non_exhaustive()
    }
}

/// Loads the head in the folder `path` for `model`. The folder of [`HeadMethod::Mtp`] may be the
/// model's own. The head guesses up to the length of `options`.
///
/// # Errors
/// [`ModelError::DraftHead`] if the head does not fit the method or the model, and the errors of a
/// model that cannot be loaded.
pub fn load_draft_head(
    path: &Path,
    method: HeadMethod,
    model: &Arc<Model>,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Arc<DraftHead>, ModelError> {
    let refused = |what: String| ModelError::DraftHead { path: path.to_owned(), what };
    if model.lm_head.is_none() {
        return Err(refused("the model generates no tokens".to_owned()));
    }
    let mut config = speculators::converted(path, ConfigSource::read(path)?, method)?;
    // The config of such a layer is the model's.
    let overrides = options.hf_overrides.as_ref().filter(|_| method == HeadMethod::Mtp);
    if let Some(overrides) = overrides {
        config.override_with(overrides);
    }
    // A packed cache belongs to the model's own tensors.
    let options = LoadOptions { weights_cache: None, ..options.clone() };
    let mut source = ModelSource { model: path, config: &config, options: &options, progress };
    let hidden_size = hidden_size(model);
    let load = match method {
        HeadMethod::Eagle => eagle::load,
        HeadMethod::Eagle3 => eagle3::load,
        HeadMethod::Mtp => mtp::load,
        HeadMethod::MlpSpeculator => mlp_speculator::load,
    };
    let Loaded { input, max_model_len, max_guesses, kv_layers, places, layers } =
        load(&mut source, &parts::Target { model, hidden_size })?;
    Ok(Arc::new(DraftHead {
        input,
        hidden_size,
        max_model_len: {
            let limit = options.max_model_len.unwrap_or(usize::MAX);
            max_model_len.min(model.max_model_len).min(limit)
        },
        max_guesses,
        kv_layers,
        places,
        layers,
        device: options.device.clone(),
    }))
}

/// Returns the width of a model's hidden states.
fn hidden_size(model: &Model) -> usize {
    let [_, hidden_size] = model.backbone.embed(&[0], Adapters::none()).dims();
    hidden_size
}
