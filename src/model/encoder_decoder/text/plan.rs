//! A model that `config.json` describes, before its weights are read.

use super::super::{AttentionForm, FeedForwardForm, NormPlace};
use crate::model::StoredDtype;
use crate::model::config::{DistanceBiasConfig, NormConfig};

/// A model.
#[derive(Debug)]
pub(super) struct TextPlan {
    /// Tokens of the decoder.
    pub(super) vocab_size: usize,
    /// Tokens of the encoder.
    pub(super) encoder_vocab_size: usize,
    pub(super) hidden_size: usize,
    /// The most tokens of a text, and of the decoder.
    pub(super) num_positions: usize,
    pub(super) encoder: StackPlan,
    pub(super) decoder: StackPlan,
    pub(super) tables: TablePlan,
    pub(super) eos_token_ids: Vec<u32>,
    pub(super) stored: StoredDtype,
}

/// A stack of layers.
#[derive(Debug)]
pub(super) struct StackPlan {
    pub(super) module: &'static str,
    /// The module of the layers, within it.
    pub(super) layers: &'static str,
    pub(super) num_layers: usize,
    pub(super) names: LayerNames,
    pub(super) attention: AttentionForm,
    pub(super) feed_forward: FeedForwardForm,
    pub(super) norm: NormConfig,
    /// The place of the norms of all parts of a layer.
    pub(super) norm_place: NormPlace,
    /// The factor on embeddings.
    pub(super) embed_scale: f32,
    /// The positions that are added to embeddings.
    pub(super) positions: Option<PositionPlan>,
    /// The norm of the sum of embeddings and positions.
    pub(super) embedding_norm: Option<&'static str>,
    /// The norm of the last layer's output.
    pub(super) final_norm: Option<&'static str>,
    /// The biases of scores by the distance between tokens.
    pub(super) distance_biases: Option<DistanceBiasConfig>,
}

/// The modules of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerNames {
    pub(super) self_attention: &'static str,
    pub(super) self_norm: &'static str,
    /// Attention to the encoder's states, which a decoder has.
    pub(super) cross_attention: &'static str,
    pub(super) cross_norm: &'static str,
    /// The module of the feed-forward part. Empty if its modules are the layer's.
    pub(super) feed_forward: &'static str,
    pub(super) feed_forward_norm: &'static str,
}

/// The positions that are added to embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PositionPlan {
    /// A table, of which the first rows belong to no position.
    Learned { first: usize },
    /// Sines and cosines with the wavelengths of <https://arxiv.org/abs/1706.03762>.
    Sinusoids,
    /// Those of tensor2tensor, whose longest wavelength is reached. The first token has this
    /// position.
    SinusoidsFrom(usize),
}

/// The tables of tokens, and the output layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct TablePlan {
    /// The table of encoder and decoder.
    pub(super) shared: &'static str,
    pub(super) of_encoder: &'static str,
    pub(super) of_decoder: &'static str,
    /// The output layer.
    pub(super) head: &'static str,
    pub(super) head_table: HeadTable,
    /// Whether encoder and decoder have one table.
    pub(super) has_one_table: bool,
    /// The tensor of the biases of logits, `[1, vocab_size]`. A checkpoint may lack it.
    pub(super) logits_bias: Option<&'static str>,
    /// The divisor of logits.
    pub(super) logits_divisor: f32,
}

/// The logit of a token that the model must not write.
pub(super) const BANNED: f32 = -1e9;

/// The matrix of the output layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadTable {
    /// The decoder's table.
    Decoders,
    /// Its own.
    Own,
    /// Its own if the checkpoint has one, and otherwise the decoder's.
    OwnIfStored,
}

impl StackPlan {
    /// Returns the module of a layer.
    pub(super) fn layer(&self, index: usize) -> String {
        format!("{}.{}.{index}", self.module, self.layers)
    }

    /// Returns the feed-forward module of a layer.
    pub(super) fn feed_forward_of(&self, layer: &str) -> String {
        match self.names.feed_forward {
            "" => layer.to_owned(),
            name => format!("{layer}.{name}"),
        }
    }
}
