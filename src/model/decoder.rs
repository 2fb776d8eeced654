//! The pre-norm decoder of the Llama line: HF `LlamaForCausalLM` and its descendants.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state, residual | `[num_tokens, hidden_size]` |
//! | q | `[num_tokens, num_attention_heads * head_dim]` |
//! | k, v | `[num_tokens, num_key_value_heads * head_dim]` |
//! | gate, up | `[num_tokens, intermediate_size]` |
//! | logits | `[rows, vocab_size]` |
//!
//! The residual stream is carried beside the hidden state, so that each addition is one pass with
//! the norm that follows it.

use burn::tensor::Tensor;
use playhouse_kernels::{
    KvCache, KvCacheShape, KvLayer, WeightDtype, profile::timed, recycle, select_rows,
};

use super::config::ModelConfig;
use super::family::WeightNames;
use super::layers::rotary::RotaryTables;
use super::layers::{Attention, Embedding, Linear, Mlp, RmsNorm};
use super::load::WeightLoader;
use super::{CausalLm, ForwardBatch, ModelError, QuantizedWeights};

/// HF `LlamaForCausalLM`.
#[derive(Debug)]
pub(super) struct Decoder {
    config: ModelConfig,
    dtype: WeightDtype,
    quantized_weights: Option<QuantizedWeights>,
    /// `None`: its rows are those of `lm_head`.
    embed_tokens: Option<Embedding>,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    lm_head: Linear,
}

/// HF `LlamaDecoderLayer`.
#[derive(Debug)]
struct DecoderLayer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

impl CausalLm for Decoder {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn dtype(&self) -> WeightDtype {
        self.dtype
    }

    fn quantized_weights(&self) -> Option<&QuantizedWeights> {
        self.quantized_weights.as_ref()
    }

    fn mapped_bytes(&self) -> u64 {
        let layers = self.layers.iter();
        let bytes = layers.map(|layer| layer.self_attn.mapped_bytes() + layer.mlp.mapped_bytes());
        bytes.sum::<u64>() + self.lm_head.mapped_bytes()
    }

    fn kv_cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape {
        KvCacheShape {
            num_layers: self.layers.len(),
            num_blocks,
            block_size,
            num_kv_heads: self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
        }
    }

    fn forward(&self, batch: &ForwardBatch<'_>, kv: &mut KvCache) -> Tensor<2> {
        let mut hidden = timed("embedding", || match &self.embed_tokens {
            Some(embed_tokens) => embed_tokens.forward(batch.token_ids),
            None => self.lm_head.rows(batch.token_ids),
        });
        let mut residual = None;
        for (index, layer) in self.layers.iter().enumerate() {
            let (output, sum) = layer.forward(hidden, residual, batch, kv.layer_mut(index));
            (hidden, residual) = (output, Some(sum));
        }
        let (hidden, residual) = self.norm.forward(hidden, residual);
        recycle(residual);
        hidden
    }

    fn logits(&self, hidden: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        timed("lm_head", || self.lm_head.forward(select_rows(hidden, rows)))
    }
}

impl DecoderLayer {
    /// The layer's output, and the residual stream that it is to be added to.
    fn forward(
        &self,
        hidden: Tensor<2>,
        residual: Option<Tensor<2>>,
        batch: &ForwardBatch<'_>,
        kv: &mut KvLayer,
    ) -> (Tensor<2>, Tensor<2>) {
        let (hidden, residual) = self.input_layernorm.forward(hidden, residual);
        let hidden = self.self_attn.forward(hidden, batch.meta, kv);
        let (hidden, residual) = self.post_attention_layernorm.forward(hidden, Some(residual));
        (self.mlp.forward(hidden), residual)
    }
}

impl Decoder {
    /// Builds the decoder that `config` describes.
    pub(super) fn load(
        config: ModelConfig,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Self, ModelError> {
        let names = &config.family.names;
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let is_tied = config.tie_word_embeddings;
        let module = if is_tied { names.embed_tokens } else { names.lm_head };
        let lm_head = Linear::lm_head(loader, module, hidden, vocab)?;
        let embed_tokens = match is_tied && lm_head.has_rows() {
            true => None,
            false => Some(Embedding::load(loader, names.embed_tokens, vocab, hidden)?),
        };
        let mut rotary = RotaryTables::new(&config, loader.device());
        let layers = (0..config.layers.len())
            .map(|index| DecoderLayer::load(loader, &config, names, index, &mut rotary))
            .collect::<Result<_, _>>()?;
        let norm = RmsNorm::load(loader, names.norm, hidden, config.rms_norm_eps)?;
        let quantized_weights = loader.quantized_weights().cloned();
        let dtype = loader.dtype();
        Ok(Self { config, dtype, quantized_weights, embed_tokens, layers, norm, lm_head })
    }
}

impl DecoderLayer {
    fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        names: &WeightNames,
        index: usize,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let prefix = format!("{}.{index}", names.layer);
        let norm = |loader: &mut WeightLoader<'_>, name| {
            let module = format!("{prefix}.{name}");
            RmsNorm::load(loader, &module, config.hidden_size, config.rms_norm_eps)
        };
        Ok(Self {
            input_layernorm: norm(loader, names.input_layernorm)?,
            self_attn: Attention::load(loader, config, names, &prefix, index, rotary)?,
            post_attention_layernorm: norm(loader, names.post_attention_layernorm)?,
            mlp: Mlp::load(loader, config, names, &prefix)?,
        })
    }
}
