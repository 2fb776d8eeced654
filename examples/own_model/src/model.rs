//! The family of parrots: models that prefer the usual next word, and avoid words already in the
//! text.
//!
//! `logits = S · x + M · mean(x₁ … xₜ)`, where `x` is the one-hot vector of a token.
//!
//! | tensor | shape |
//! |---|---|
//! | `embedding.weight`, the identity | `[vocab, vocab]` |
//! | `successors.weight`, S: the score of each next token | `[vocab, vocab]` |
//! | `memory.weight`, M: the score that each token's share of the text adds | `[vocab, vocab]` |
//! | x, keys, values, hidden states | `[num_tokens, vocab]` |

use std::sync::Arc;

use playhouse::model::{
    Adapters, Backbone, KvLayers, LmHead, Model, ModelError, ModelFamily, ModelSource, Positions,
    Step, StoredDtype,
    ops::{
        AttentionParams, EmbeddingTable, LinearWeight, Tensor, embedding, linear, paged_attention,
        reshape_and_cache, select_rows,
    },
};

/// The entry in `architectures` of a parrot's `config.json`.
pub(crate) const ARCHITECTURE: &str = "ParrotForCausalLM";

/// The family.
pub(crate) struct Parrots;

struct Parrot {
    embedding: EmbeddingTable,
    successors: LinearWeight,
    memory: LinearWeight,
}

/// A head without weights: the hidden states are logits already.
struct Identity;

/// Attention with a score of zero for every key: its softmax is a mean.
const MEAN: AttentionParams = AttentionParams::new(1, 0.0);

impl ModelFamily for Parrots {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let vocab = source.size("vocab_size")?;
        let max_model_len = source.max_model_len(source.size("max_position_embeddings")?)?;
        source.load_weights(StoredDtype::F32, |loader| {
            let parrot = Parrot {
                embedding: loader.embedding("embedding", [vocab, vocab])?,
                successors: loader.linear("successors", [vocab, vocab])?,
                memory: loader.linear("memory", [vocab, vocab])?,
            };
            Ok(Model {
                architecture: ARCHITECTURE.to_owned(),
                vocab_size: vocab,
                max_model_len,
                // The tokenizer names the end-of-sequence token.
                eos_token_ids: Vec::new(),
                kv_layers: KvLayers::full(1, 1, vocab),
                dtype: loader.dtype(),
                quantized_weights: loader.quantized_weights().cloned(),
                backbone: Arc::new(parrot),
                lm_head: Some(Arc::new(Identity)),
                pooler: None,
                media: None,
                // Its layers take no adapters.
                adapter_sites: Arc::default(),
            })
        })
    }
}

impl Backbone for Parrot {
    fn embed(&self, token_ids: &[u32], _: Adapters<'_>) -> Tensor<2> {
        embedding(&self.embedding, token_ids)
    }

    fn forward(&self, x: Tensor<2>, _: Positions<'_>, step: &mut Step<'_>) -> Tensor<2> {
        let (meta, layer) = step.layer(0);
        reshape_and_cache(x.clone(), x.clone(), layer, &meta.slot_mapping);
        let mean = paged_attention(x.clone(), layer, meta, &MEAN);
        linear(x, &self.successors, None) + linear(mean, &self.memory, None)
    }
}

impl LmHead for Identity {
    fn logits(&self, hidden: Tensor<2>, rows: &[u32], _: Adapters<'_>) -> Tensor<2> {
        select_rows(hidden, rows)
    }
}
