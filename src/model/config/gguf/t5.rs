//! T5 of llama.cpp, whose keys become the fields of HF `T5Config`.

use super::architecture::{Architecture, Key};
use super::architectures::PLAIN;
use super::metadata::Metadata;
use crate::gguf::{FORMAT, GgufError};
use crate::model_files::ModelFileError;

/// T5 with its decoder. mT5 and T5 1.1 differ from it in data alone.
pub(super) const T5: &[Architecture] = &[Architecture {
    name: "t5",
    class: "T5ForConditionalGeneration",
    keys: &[
        Key::integer("decoder_block_count", "num_decoder_layers"),
        Key::integer("decoder_start_token_id", "decoder_start_token_id"),
        Key::integer("attention.relative_buckets_count", "relative_attention_num_buckets"),
        // The same number as without "rms", which the converter writes beside it.
        Key::equal("attention.layer_norm_epsilon", RMS_EPS),
        Key::equal("attention.value_length", "attention.key_length"),
        Key::equal("attention.head_count_kv", "attention.head_count"),
    ],
    ..PLAIN
}];

const RMS_EPS: &str = "attention.layer_norm_rms_epsilon";
const TABLE: &str = "token_embd.weight";

impl Metadata<'_> {
    /// Sets the fields of T5, except those of its own keys.
    pub(super) fn t5(&mut self) -> Result<(), GgufError> {
        let file = self.file;
        let width = self.required_integer("d_model", "embedding_length")?;
        self.required_integer("num_layers", "block_count")?;
        self.required_integer("d_ff", "feed_forward_length")?;
        self.required_integer("n_positions", "context_length")?;
        let heads = self.required_integer("num_heads", "attention.head_count")?;
        if self.integer("d_kv", "attention.key_length")?.is_none() {
            // llama.cpp's default.
            let head_dim = width.checked_div(heads).unwrap_or(0);
            self.object.insert("d_kv".to_owned(), head_dim.into());
        }
        let key = self.key(RMS_EPS);
        let eps = file.number(&key)?.ok_or_else(|| file.missing(&key, "a number above 0"))?;
        self.set("layer_norm_epsilon", key, eps);
        if let Some(rows) = file.tensor(TABLE).and_then(|table| table.shape.first().copied()) {
            self.set("vocab_size", format!("the rows of tensor {TABLE}"), rows as u64);
        }
        self.t5_feed_forward();
        // The first T5 has one table for all, and its logits are divided by a root of the width.
        let bytes = |name: &str| {
            let tensor = file.tensor(name)?;
            Some((tensor.kind.name, file.tensor_bytes(name)?))
        };
        let head = bytes("output.weight");
        let is_tied = head.is_none() || head == bytes(TABLE);
        self.object.insert("tie_word_embeddings".to_owned(), is_tied.into());
        self.one_table_of_biases()
    }

    /// Sets the activation, of which llama.cpp knows two.
    pub(super) fn t5_feed_forward(&mut self) {
        let is_gated = self.file.tensor("enc.blk.0.ffn_gate.weight").is_some();
        let projection = if is_gated { "gated-gelu" } else { "relu" };
        self.object.insert("feed_forward_proj".to_owned(), projection.into());
    }

    /// Refuses umT5, whose layers have tables of biases of their own.
    pub(super) fn one_table_of_biases(&self) -> Result<(), GgufError> {
        let is_later = |name: &str| {
            let rest = name.strip_prefix("enc.blk.").or_else(|| name.strip_prefix("dec.blk."));
            let layer = rest.and_then(|rest| rest.strip_suffix(".attn_rel_b.weight"));
            layer.is_some_and(|layer| layer != "0")
        };
        let Some((name, _)) = self.file.tensors().find(|(name, _)| is_later(name)) else {
            return Ok(());
        };
        let reason =
            format!("tensor `{name}` is a table of one layer, as in umT5; expected one for all");
        Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into())
    }
}
