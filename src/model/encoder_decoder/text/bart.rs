//! BART and the models that differ from it in norms and positions.

use super::super::{AttentionForm, FeedForwardForm, NORM, NormPlace, StackConfig, activation};
use super::families::TextFamily;
use super::plan::{HeadTable, LayerNames, PositionPlan, StackPlan, TablePlan, TextPlan};
use crate::model::StoredDtype;
use crate::model::config::{ConfigError, Fields, stored_dtype};

/// The facts that tell a family from the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct BartRules {
    /// The place of the norms of all parts of a layer.
    pub(super) norms: NormPlace,
    pub(super) positions: Positions,
    /// Whether the sum of embeddings and positions is normed: `layernorm_embedding`.
    pub(super) norms_embeddings: bool,
    /// Whether the class has biases of logits: `final_logits_bias`.
    pub(super) has_logits_bias: bool,
    /// Whether encoder and decoder may have tables of their own, with different sizes:
    /// `share_encoder_decoder_embeddings` and `decoder_vocab_size`.
    pub(super) may_have_two_tables: bool,
}

/// The positions of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    /// A table, of which the first rows belong to no position.
    Learned {
        first: usize,
    },
    Sinusoids,
    /// The first positions, up to that of `pad_token_id`, are skipped.
    SinusoidsBehindPad,
}

const NAMES: LayerNames = LayerNames {
    self_attention: "self_attn",
    self_norm: "self_attn_layer_norm",
    cross_attention: "encoder_attn",
    cross_norm: "encoder_attn_layer_norm",
    feed_forward: "",
    feed_forward_norm: "final_layer_norm",
};

impl BartRules {
    /// Reads the fields of a model of `family`: HF `BartConfig` and those of the other families.
    ///
    /// # Errors
    /// [`ConfigError`] if a field is missing or has no valid value.
    pub(super) fn read(
        &self,
        family: &TextFamily,
        fields: &Fields,
    ) -> Result<TextPlan, ConfigError> {
        family.check(fields)?;
        let hidden_size = fields.required_size("d_model")?;
        let encoder_vocab_size = fields.required_size("vocab_size")?;
        let of_decoder = match self.may_have_two_tables {
            true => fields.size("decoder_vocab_size")?,
            false => None,
        };
        let has_one_table = !self.may_have_two_tables
            || fields.flag_or("share_encoder_decoder_embeddings", true)?;
        if has_one_table && of_decoder.is_some_and(|size| size != encoder_vocab_size) {
            let expected = format!("`vocab_size`, {encoder_vocab_size}, for one table of both");
            return Err(fields.invalid("decoder_vocab_size", &expected));
        }
        let is_tied = fields.flag_or("tie_word_embeddings", true)?;
        Ok(TextPlan {
            vocab_size: of_decoder.unwrap_or(encoder_vocab_size),
            encoder_vocab_size,
            hidden_size,
            num_positions: fields.required_size("max_position_embeddings")?,
            encoder: self.stack(fields, "encoder", "model.encoder", hidden_size)?,
            decoder: self.stack(fields, "decoder", "model.decoder", hidden_size)?,
            tables: TablePlan {
                shared: "model.shared",
                of_encoder: "model.encoder.embed_tokens",
                of_decoder: "model.decoder.embed_tokens",
                head: "lm_head",
                head_table: if is_tied { HeadTable::Decoders } else { HeadTable::Own },
                has_one_table,
                logits_bias: self.has_logits_bias.then_some("final_logits_bias"),
                logits_divisor: 1.0,
            },
            eos_token_ids: fields.token_ids("eos_token_id")?,
            stored: stored_dtype(fields)?.unwrap_or(StoredDtype::F32),
        })
    }

    fn stack(
        &self,
        fields: &Fields,
        part: &str,
        module: &'static str,
        hidden: usize,
    ) -> Result<StackPlan, ConfigError> {
        let StackConfig { num_layers, num_heads, intermediate_size } =
            StackConfig::read(fields, part, hidden)?;
        let positions = match self.positions {
            Positions::Learned { first } => PositionPlan::Learned { first },
            Positions::Sinusoids => PositionPlan::Sinusoids,
            Positions::SinusoidsBehindPad => {
                PositionPlan::SinusoidsFrom(fields.count("pad_token_id")?.unwrap_or(1) + 1)
            }
        };
        let scales = fields.flag_or("scale_embedding", false)?;
        Ok(StackPlan {
            module,
            layers: "layers",
            num_layers,
            names: NAMES,
            attention: AttentionForm::of_bart(hidden, num_heads),
            feed_forward: FeedForwardForm::of_bart(hidden, intermediate_size, activation(fields)?),
            norm: NORM,
            norm_place: self.norms,
            embed_scale: if scales { (hidden as f64).sqrt() as f32 } else { 1.0 },
            positions: Some(positions),
            embedding_norm: self.norms_embeddings.then_some("layernorm_embedding"),
            // A norm after the last sum is the layer's own.
            final_norm: (self.norms == NormPlace::Before).then_some("layer_norm"),
            distance_biases: None,
        })
    }
}
