//! The supported encoders of llama.cpp, as data.

use super::architecture::{Architecture, Key};
use super::architectures::{NORMS, PLAIN};
use super::metadata::Metadata;
use super::sigmoids::unused;
use crate::gguf::GgufError;
use crate::model::family::LayerNorms;

/// Attention to both sides. In these classes, there is no other.
const BOTH_SIDES: Key = unused("attention.causal");

/// Norms after the sums of a layer.
const AFTER_SUMS: LayerNorms = LayerNorms {
    after_attention: Some("attn_output_norm"),
    after_mlp: Some("layer_output_norm"),
    ..NORMS
};

/// Every encoder that is read.
pub(super) const ENCODERS: &[Architecture] = &[
    // Also RoBERTa, XLM-R, CamemBERT and DistilBERT: the converter leaves out the positions that
    // texts do not have.
    Architecture {
        name: "bert",
        class: "BertModel",
        norms: AFTER_SUMS,
        keys: &[BOTH_SIDES],
        adjust: |metadata| {
            metadata.tensor_rows("type_vocab_size", "token_types.weight");
            metadata.pooling()
        },
        ..PLAIN
    },
    Architecture {
        name: "eurobert",
        class: "EuroBertModel",
        keys: &[BOTH_SIDES],
        adjust: |metadata| metadata.pooling(),
        ..PLAIN
    },
    Architecture {
        name: "modern-bert",
        class: "ModernBertModel",
        keys: &[
            BOTH_SIDES,
            Key::integer("attention.sliding_window", "local_attention"),
            Key::integer("attention.sliding_window_pattern", "global_attn_every_n_layers"),
            Key::number("rope.freq_base_swa", "local_rope_theta"),
            // That of a classifier.
            unused("classifier.pooling_type"),
        ],
        adjust: |metadata| {
            let (file, key) = (metadata.file, metadata.key("hidden_activation"));
            if let Some(name) = file.text(&key)? {
                metadata.set("hidden_activation", key, name);
            }
            metadata.pooling()
        },
        ..PLAIN
    },
    Architecture {
        name: "nomic-bert",
        class: "NomicBertModel",
        norms: AFTER_SUMS,
        keys: &[BOTH_SIDES],
        adjust: |metadata| {
            metadata.tensor_rows("type_vocab_size", "token_types.weight");
            metadata.pooling()
        },
        ..PLAIN
    },
    Architecture {
        name: "t5encoder",
        class: "T5EncoderModel",
        layers: "enc.blk",
        keys: &[
            BOTH_SIDES,
            Key::integer("attention.relative_buckets_count", "relative_attention_num_buckets"),
        ],
        adjust: |metadata| {
            metadata.t5_feed_forward();
            metadata.one_table_of_biases()?;
            metadata.pooling()
        },
        ..PLAIN
    },
];

impl Metadata<'_> {
    /// Sets the pooling of vectors (`llama_pooling_type` of llama.h). The files of T5 have none,
    /// and all published models pool the mean.
    fn pooling(&mut self) -> Result<(), GgufError> {
        const FIELD: &str = "emb_pooler";
        const EXPECTED: &str = "1, the mean, or 2, the first token";
        let key = self.key("pooling_type");
        let name = match self.file.unsigned(&key)? {
            Some(1) => "mean",
            Some(2) => "cls",
            None | Some(0) if self.architecture.name == "t5encoder" => "mean",
            None | Some(0) => return Ok(()),
            Some(_) => return Err(self.file.unexpected(&key, EXPECTED)),
        };
        self.set(FIELD, key, name);
        Ok(())
    }
}
