//! The parts of a model: a backbone, and the heads that read its hidden states.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{KvCacheShape, WeightDtype};

use super::config::{POSITIONS_MAX, SIZE_MAX};
use super::{AdapterSites, Adapters, ModelError, Pooler, Positions, QuantizedWeights, Step};

/// The part of a model from tokens to hidden states.
///
/// A row's bytes depend on its sequence alone. They do not depend on the rest of the batch, on the
/// chunks of the sequence, or on its blocks. This does not hold for weights that were loaded for a
/// GPU's tensor cores.
pub trait Backbone: Send + Sync {
    /// Returns the hidden states before the first layer: `[num_tokens, hidden_size]`, f32. A
    /// backbone whose [`Model::adapter_sites`] are empty may ignore `adapters`.
    ///
    /// # Panics
    /// If a token id is outside the vocabulary: the input has been validated.
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2>;

    /// Runs the layers over `hidden`, the result of [`Backbone::embed`], and writes keys and values
    /// of the step's tokens into its cache. Returns the hidden state of every token after the final
    /// norm: `[num_tokens, hidden_size]`, f32.
    ///
    /// # Panics
    /// If `hidden`, `positions` and `step` disagree with each other or with the shape of the cache,
    /// or a position is outside `max_model_len`: the input has been validated.
    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2>;

    /// Returns the most tokens of a request that the model computes in another way than longer
    /// ones, by [`Positions::with_rotary_rows`]. It is less than `max_model_len`. The default
    /// computes all requests alike.
    fn short_context(&self) -> Option<usize> {
        None
    }

    /// Returns the number of layers whose inputs and outputs [`Backbone::forward_with_inputs`] can
    /// return.
    fn num_layers(&self) -> usize {
        0
    }

    /// Does the same as [`Backbone::forward`], and returns also the residual stream before the
    /// layers of the indices `wanted`, which increase: `[num_tokens, hidden_size]` each. The number
    /// of layers stands for the stream after the last one. Heads that guess tokens read them. The
    /// default has no layers, and returns none.
    ///
    /// # Panics
    /// As [`Backbone::forward`].
    fn forward_with_inputs(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
        _wanted: &[usize],
    ) -> (Tensor<2>, Vec<Tensor<2>>) {
        (self.forward(hidden, positions, step), Vec::new())
    }

    /// Returns the bytes of weights that are pages of a file. The system counts them as free
    /// memory, although each step reads them.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}

/// The head that predicts the next token.
pub trait LmHead: Send + Sync {
    /// Returns the logits of some rows of `hidden`, `[num_tokens, hidden_size]`. They are
    /// `[rows, vocab_size]`, f32. `adapters` are those of all rows of `hidden`.
    ///
    /// # Panics
    /// If a row is outside `hidden`.
    fn logits(&self, hidden: Tensor<2>, rows: &[u32], adapters: Adapters<'_>) -> Tensor<2>;

    /// Returns the number of tokens, the last ones of the vocabulary, whose logits are always -∞.
    /// Requests that name one of them are rejected.
    fn num_unscored(&self) -> usize {
        0
    }

    /// Returns the same as [`Backbone::mapped_bytes`], for the head.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}

/// The part of a model from images and sounds to embeddings. In an encoder-decoder for text, it is
/// the encoder.
///
/// An item's bytes depend on that item alone, and not on the others of a batch.
pub trait MediaEncoder: Send + Sync {
    /// Returns the result of each item, in order.
    ///
    /// # Errors
    /// The reason why an item cannot be encoded. It concerns that item alone.
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>>;

    /// Returns the axes of the backbone's positions: 1, or 3 for frames, rows and columns (M-RoPE).
    fn position_axes(&self) -> usize {
        1
    }

    /// Returns the positions of an item's frames on the first of three axes, relative to that of
    /// the first frame.
    fn frame_positions(&self, item: &MediaInput<'_>) -> Vec<u32> {
        let [frames, ..] = item.grid.unwrap_or_default();
        (0..frames).collect()
    }

    /// Returns whether the tokens of an item that follow each other also attend to those after
    /// them (Gemma 3). One step must then compute all of them.
    fn attends_within_items(&self) -> bool {
        false
    }

    /// Returns whether all tokens of a prompt with an item attend to each other (PaliGemma). The
    /// first item of the prompt then spans it.
    fn attends_within_prompts(&self) -> bool {
        false
    }

    /// Returns whether a token of a prompt is the place of an embedding.
    fn is_placeholder(&self, token_id: u32) -> bool;

    /// Returns the same as [`Backbone::mapped_bytes`], for the encoder.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}

/// An item in the form that the model's processor made.
#[derive(Debug, Clone, Default)]
pub struct MediaInput<'a> {
    /// Its tensors.
    pub tensors: Vec<MediaTensorView<'a>>,
    /// Number of embeddings that the encoder has to return.
    pub num_embeds: usize,
    /// Frames, rows and columns of its embeddings.
    pub grid: Option<[u32; 3]>,
}

/// Numbers of an item.
#[derive(Debug, Clone, Copy)]
pub struct MediaTensorView<'a> {
    /// The sizes of its axes, the outermost first.
    pub shape: &'a [usize],
    /// The elements, in row-major order.
    pub data: MediaData<'a>,
}

/// The elements of a tensor.
#[derive(Debug, Clone, Copy)]
pub enum MediaData<'a> {
    /// Bytes.
    U8(&'a [u8]),
    /// Little-endian f32.
    F32(&'a [u8]),
    /// Ids of tokens, little-endian u32.
    TokenIds(&'a [u8]),
}

/// The result of encoding an item.
#[derive(Debug, Clone)]
pub struct EncoderOutput {
    /// The hidden states in the places of the item's placeholders, f32:
    /// `[num_embeds, hidden_size]`.
    pub embeddings: Tensor<2>,
    /// Tensors for single layers of the backbone, whose meaning is between the encoder and the
    /// backbone: for example states to add after the first layers (deepstack), or keys and values
    /// of attention to the item.
    pub by_layer: Vec<Tensor<2>>,
}

/// A model: a backbone with its heads, and the facts that the engine needs.
#[derive(Clone)]
pub struct Model {
    /// The entry of `architectures` that the model is served as.
    pub architecture: String,
    /// The number of logits of a token. Every token id is smaller.
    pub vocab_size: usize,
    /// The longest context served, in tokens.
    pub max_model_len: usize,
    /// Tokens that end a sequence. The tokenizer and `generation_config.json` may name more.
    pub eos_token_ids: Vec<u32>,
    /// The shape of a token's keys and values in the KV cache.
    pub kv_layers: KvLayers,
    /// The type of the weights, and by default of keys and values.
    pub dtype: WeightDtype,
    /// The format of quantized weights, if any are.
    pub quantized_weights: Option<QuantizedWeights>,
    /// The layers that adapters may change. The default has none.
    pub adapter_sites: Arc<AdapterSites>,
    /// The part from tokens to hidden states.
    pub backbone: Arc<dyn Backbone>,
    /// The part from hidden states to logits. A model without it only pools.
    pub lm_head: Option<Arc<dyn LmHead>>,
    /// The part from hidden states to vectors or classes. A model without it only generates.
    pub pooler: Option<Arc<Pooler>>,
    /// The part from images and sounds to hidden states. A model without it takes text alone.
    pub media: Option<Arc<dyn MediaEncoder>>,
}

/// The shape of a token's keys and values in the KV cache: in each layer those of some heads. The
/// engine makes its groups of layers from this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvLayers {
    /// The tokens that are read in each layer of the cache. [`Step::layer`] numbers the layers from
    /// 0. A model without layers in the cache computes prompts whole and generates nothing.
    pub windows: Vec<KvWindow>,
    /// Heads of keys in each layer that has keys; as many heads of values. 0 if all layers have a
    /// state.
    pub num_kv_heads: usize,
    /// Elements of a head; even.
    pub head_dim: usize,
    /// Elements of a key that are its value, from its first on; even. Then no values are stored:
    /// see [`cache_keys`](super::ops::cache_keys). `None`: values are stored, as wide as keys.
    pub value_prefix: Option<usize>,
}

/// The tokens that a token reads in one layer. The engine keeps no others, so a layer must not read
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvWindow {
    /// All tokens so far.
    Full,
    /// The last tokens: this number, including the token itself. At least 1.
    Sliding(u32),
    /// The tokens of its chunk. Chunks of this number of tokens begin at its multiples. At least 1.
    Chunked(u32),
    /// No token, but a state of this many f32, which each token changes. At least 1.
    State(usize),
}

impl KvWindow {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Sliding(0) | Self::Chunked(0) | Self::State(0))
    }
}

impl KvLayers {
    /// Returns the shape of layers in which a token reads all tokens so far.
    #[must_use]
    pub fn full(num_layers: usize, num_kv_heads: usize, head_dim: usize) -> Self {
        let windows = vec![KvWindow::Full; num_layers];
        Self { windows, num_kv_heads, head_dim, value_prefix: None }
    }

    /// Returns the numbers of the largest state of a layer, f32; 0 if no layer has a state.
    #[must_use]
    pub fn state_len(&self) -> usize {
        let lens = self.windows.iter().map(|window| match window {
            KvWindow::State(len) => *len,
            KvWindow::Full | KvWindow::Sliding(_) | KvWindow::Chunked(_) => 0,
        });
        lens.max().unwrap_or_default()
    }

    /// Returns the shape of a KV cache of `num_blocks` blocks of `block_size` tokens, if all layers
    /// are one group.
    #[must_use]
    pub fn cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape {
        let Self { ref windows, num_kv_heads, head_dim, value_prefix } = *self;
        KvCacheShape {
            num_layers: windows.len(),
            num_blocks,
            block_size,
            num_kv_heads,
            head_dim,
            value_head_dim: value_prefix.unwrap_or(head_dim),
            values_in_keys: value_prefix.is_some(),
            state_len: self.state_len(),
        }
    }

    /// Returns whether no layer of the cache has keys: all have a state, or there are none.
    #[must_use]
    pub fn has_no_keys(&self) -> bool {
        self.windows.iter().all(|window| matches!(window, KvWindow::State(_)))
    }
}

impl Model {
    /// Returns the bytes of weights that are pages of a file: see [`Backbone::mapped_bytes`].
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        let head = self.lm_head.as_ref().map_or(0, |head| head.mapped_bytes());
        let media = self.media.as_ref().map_or(0, |media| media.mapped_bytes());
        self.backbone.mapped_bytes() + head + media
    }

    /// Returns the shape of this model's KV cache of `num_blocks` blocks of `block_size` tokens, if
    /// all layers are one group.
    #[must_use]
    pub fn kv_cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape {
        self.kv_layers.cache_shape(num_blocks, block_size)
    }

    /// Rejects facts that the engine cannot serve, because a family may give wrong ones.
    ///
    /// # Errors
    /// [`ModelError::Fact`] names the first fact, its value and what is accepted.
    pub(super) fn check_facts(&self) -> Result<(), ModelError> {
        let KvLayers { ref windows, num_kv_heads, head_dim, value_prefix } = self.kv_layers;
        let least = usize::from(self.kv_layers.has_no_keys());
        // A model that only pools may keep nothing of a prompt.
        let least_windows = usize::from(self.lm_head.is_none());
        let num_values = value_prefix.unwrap_or(head_dim).max(least);
        let facts = [
            ("vocab_size", self.vocab_size, SIZE_MAX),
            ("max_model_len", self.max_model_len, POSITIONS_MAX),
            ("the number of kv_layers.windows", windows.len().max(least_windows), SIZE_MAX),
            ("kv_layers.num_kv_heads", num_kv_heads.max(least), SIZE_MAX),
            ("kv_layers.head_dim", head_dim.max(least), SIZE_MAX),
            ("kv_layers.value_prefix", num_values, head_dim.max(least)),
        ];
        let num_heads = usize::from(self.lm_head.is_some()) + usize::from(self.pooler.is_some());
        let refused = |fact, value, accepted| {
            Err(ModelError::Fact { architecture: self.architecture.clone(), fact, value, accepted })
        };
        match facts.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            Some((fact, value, most)) => refused(fact, value, format!("1 to {most}")),
            None if num_heads == 0 => {
                refused("the number of heads", 0, "an lm_head, a pooler or both".to_owned())
            }
            None if head_dim % 2 == 1 => {
                refused("kv_layers.head_dim", head_dim, "an even number".to_owned())
            }
            None if value_prefix.is_some_and(|width| width % 2 == 1) => {
                let width = value_prefix.unwrap_or_default();
                refused("kv_layers.value_prefix", width, "an even number".to_owned())
            }
            None if windows.iter().any(KvWindow::is_empty) => {
                refused("kv_layers.windows", 0, "windows of at least 1 token".to_owned())
            }
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("architecture", &self.architecture)
            .field("vocab_size", &self.vocab_size)
            .field("max_model_len", &self.max_model_len)
            .field("kv_layers", &self.kv_layers)
            .finish_non_exhaustive()
    }
}
