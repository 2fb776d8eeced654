//! T5 and mT5: HF `T5Config` and `MT5Config` (<https://arxiv.org/abs/1910.10683>,
//! <https://arxiv.org/abs/2010.11934>).
//!
//! RMS norms before the parts of a layer, biases of scores by distances, no other biases, and
//! scores without a scale.

use super::super::{AttentionBias, AttentionForm, FeedForwardForm, NormPlace};
use super::families::TextFamily;
use super::plan::{HeadTable, LayerNames, StackPlan, TablePlan, TextPlan};
use crate::model::StoredDtype;
use crate::model::config::{
    ActivationName, ConfigError, DistanceBiasConfig, Fields, NormConfig, stored_dtype,
};
use crate::model::families::encoders::distance_biases;
use crate::model::family::NormKind;
use crate::model::layers::plain_activation;

const ENCODER: LayerNames = LayerNames {
    self_attention: "layer.0.SelfAttention",
    self_norm: "layer.0.layer_norm",
    cross_attention: "",
    cross_norm: "",
    feed_forward: "layer.1.DenseReluDense",
    feed_forward_norm: "layer.1.layer_norm",
};

const DECODER: LayerNames = LayerNames {
    cross_attention: "layer.1.EncDecAttention",
    cross_norm: "layer.1.layer_norm",
    feed_forward: "layer.2.DenseReluDense",
    feed_forward_norm: "layer.2.layer_norm",
    ..ENCODER
};

const ENCODER_BIASES: &str = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias";
const DECODER_BIASES: &str = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias";

/// Parts of names, and those in their place in GGUF files: in both stacks, in the encoder alone,
/// and in the decoder alone.
const GGUF_NAMES: [(&str, &str); 9] = [
    ("shared.", "token_embd."),
    ("lm_head.", "output."),
    ("encoder.block.", "enc.blk."),
    ("decoder.block.", "dec.blk."),
    ("encoder.final_layer_norm.", "enc.output_norm."),
    ("decoder.final_layer_norm.", "dec.output_norm."),
    (".layer.0.SelfAttention.relative_attention_bias.", ".attn_rel_b."),
    (".layer.0.SelfAttention.", ".attn_"),
    (".layer.0.layer_norm.", ".attn_norm."),
];
const GGUF_NAMES_OF_ENCODER: [(&str, &str); 2] =
    [(".layer.1.layer_norm.", ".ffn_norm."), (".layer.1.DenseReluDense.", ".")];
const GGUF_NAMES_OF_DECODER: [(&str, &str); 4] = [
    (".layer.1.EncDecAttention.", ".cross_attn_"),
    (".layer.1.layer_norm.", ".cross_attn_norm."),
    (".layer.2.layer_norm.", ".ffn_norm."),
    (".layer.2.DenseReluDense.", "."),
];
/// The modules of a feed-forward part.
const GGUF_FEED_FORWARD: [(&str, &str); 4] = [
    (".wi.", ".ffn_up."),
    (".wi_0.", ".ffn_gate."),
    (".wi_1.", ".ffn_up."),
    (".wo.", ".ffn_down."),
];

/// Returns the name of a tensor in llama.cpp's files of T5 (`TensorNameMap` of the `gguf` package).
pub(super) fn gguf_name(name: &str) -> String {
    let of_stack: &[(&str, &str)] = match name.starts_with("decoder.") {
        true => &GGUF_NAMES_OF_DECODER,
        false => &GGUF_NAMES_OF_ENCODER,
    };
    let parts = GGUF_NAMES.iter().chain(of_stack).chain(&GGUF_FEED_FORWARD);
    parts.fold(name.to_owned(), |name, (own, stored)| name.replacen(own, stored, 1))
}

/// The differences between the config classes.
#[derive(Debug, Clone, Copy)]
pub(super) struct T5Rules {
    /// The default of `feed_forward_proj`.
    pub(super) feed_forward: &'static str,
    /// Whether fields may divide the logits by the root of the width.
    pub(super) may_scale: bool,
}

/// Reads the fields of a model of `family`.
///
/// # Errors
/// [`ConfigError`] if a field is missing or has no valid value.
pub(super) fn read(
    family: &TextFamily,
    rules: T5Rules,
    fields: &Fields,
) -> Result<TextPlan, ConfigError> {
    const HEAD_DIM: &str = "d_kv";
    family.check(fields)?;
    let (hidden, heads) = (fields.required_size("d_model")?, fields.required_size("num_heads")?);
    let head_dim = fields.required_size(HEAD_DIM)?;
    if !head_dim.is_multiple_of(2) {
        return Err(fields.invalid(HEAD_DIM, "an even number"));
    }
    let (names, bias) = (["q", "k", "v", "o"], AttentionBias::None);
    let attention = AttentionForm { hidden, heads, head_dim, names, bias, scale: 1.0 };
    let feed_forward = feed_forward(fields, hidden, rules.feed_forward)?;
    let eps = fields.positive("layer_norm_epsilon")?.unwrap_or(1e-6) as f32;
    let norm = NormConfig { kind: NormKind::Rms, eps };
    let stack = |module, names, num_layers, distance_biases: DistanceBiasConfig| StackPlan {
        module,
        layers: "block",
        num_layers,
        names,
        attention,
        feed_forward,
        norm,
        norm_place: NormPlace::Before,
        embed_scale: 1.0,
        positions: None,
        embedding_norm: None,
        final_norm: Some("final_layer_norm"),
        distance_biases: Some(distance_biases),
    };
    let biases = |module, is_causal| {
        distance_biases(fields, module, Some("relative_attention_max_distance"), is_causal)
    };
    let of_encoder = biases(ENCODER_BIASES, false)?;
    let of_decoder = biases(DECODER_BIASES, true)?;
    let num_layers = fields.required_size("num_layers")?;
    let num_decoder_layers = fields.size("num_decoder_layers")?.unwrap_or(num_layers);
    // The field of transformers 5, before which another one stood for it.
    let scales = match fields.flag("scale_decoder_outputs")? {
        _ if !rules.may_scale => false,
        Some(scales) => scales,
        None => fields.flag("tie_word_embeddings")? != Some(false),
    };
    let vocab_size = fields.required_size("vocab_size")?;
    Ok(TextPlan {
        vocab_size,
        encoder_vocab_size: vocab_size,
        hidden_size: hidden,
        num_positions: fields.size("n_positions")?.unwrap_or(512),
        encoder: stack("encoder", ENCODER, num_layers, of_encoder),
        decoder: stack("decoder", DECODER, num_decoder_layers, of_decoder),
        tables: TablePlan {
            shared: "shared",
            of_encoder: "encoder.embed_tokens",
            of_decoder: "decoder.embed_tokens",
            head: "lm_head",
            head_table: HeadTable::OwnIfStored,
            has_one_table: true,
            logits_bias: None,
            logits_divisor: if scales { (hidden as f64).sqrt() as f32 } else { 1.0 },
        },
        eos_token_ids: fields.token_ids("eos_token_id")?,
        stored: stored_dtype(fields)?.unwrap_or(StoredDtype::F32),
    })
}

fn feed_forward(
    fields: &Fields,
    hidden: usize,
    default: &str,
) -> Result<FeedForwardForm, ConfigError> {
    const FIELD: &str = "feed_forward_proj";
    let projection = fields.text(FIELD)?.unwrap_or(default);
    let (inner, name): (&[&str], &str) = match projection.strip_prefix("gated-") {
        // HF computes the approximation with tanh by this name.
        Some("gelu") => (&["wi_0", "wi_1"], "gelu_new"),
        Some(name) => (&["wi_0", "wi_1"], name),
        None => (&["wi"], projection),
    };
    let activation = ActivationName::from_name(name).and_then(plain_activation);
    let expected = "the name of an activation, or one behind \"gated-\"";
    let activation = activation.ok_or_else(|| fields.invalid(FIELD, expected))?;
    let intermediate = fields.required_size("d_ff")?;
    Ok(FeedForwardForm { hidden, intermediate, inner, outer: "wo", has_bias: false, activation })
}

#[cfg(test)]
mod tests {
    use super::gguf_name;

    /// The names are those of the `gguf` package.
    #[test]
    fn names_in_gguf_files_are_those_of_llama_cpp() {
        let biases = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
        for (name, stored) in [
            ("shared.weight", "token_embd.weight"),
            ("lm_head.weight", "output.weight"),
            ("encoder.final_layer_norm.weight", "enc.output_norm.weight"),
            ("encoder.block.3.layer.0.layer_norm.weight", "enc.blk.3.attn_norm.weight"),
            ("encoder.block.3.layer.0.SelfAttention.o.weight", "enc.blk.3.attn_o.weight"),
            (biases, "enc.blk.0.attn_rel_b.weight"),
            ("encoder.block.11.layer.1.layer_norm.weight", "enc.blk.11.ffn_norm.weight"),
            ("encoder.block.1.layer.1.DenseReluDense.wi.weight", "enc.blk.1.ffn_up.weight"),
            ("encoder.block.1.layer.1.DenseReluDense.wo.weight", "enc.blk.1.ffn_down.weight"),
            ("decoder.block.1.layer.0.SelfAttention.q.weight", "dec.blk.1.attn_q.weight"),
            ("decoder.block.1.layer.1.layer_norm.weight", "dec.blk.1.cross_attn_norm.weight"),
            ("decoder.block.1.layer.1.EncDecAttention.v.weight", "dec.blk.1.cross_attn_v.weight"),
            ("decoder.block.1.layer.2.layer_norm.weight", "dec.blk.1.ffn_norm.weight"),
            ("decoder.block.1.layer.2.DenseReluDense.wi_0.weight", "dec.blk.1.ffn_gate.weight"),
            ("decoder.block.1.layer.2.DenseReluDense.wi_1.weight", "dec.blk.1.ffn_up.weight"),
        ] {
            assert_eq!(gguf_name(name), stored);
        }
    }
}
