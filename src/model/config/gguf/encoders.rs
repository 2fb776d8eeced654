//! The supported encoders of llama.cpp, as data.

use serde_json::json;

use super::architecture::Constant::{Flag, HasTensor};
use super::architecture::{ALWAYS_WINDOW, Architecture, Key};
use super::architectures::{NORMS, PLAIN};
use super::metadata::Metadata;
use super::sigmoids::unused;
use crate::gguf::{FORMAT, GgufError};
use crate::model::family::LayerNorms;
use crate::model_files::ModelFileError;

/// Attention to both sides. In these classes, there is no other.
const BOTH_SIDES: Key = unused("attention.causal");

/// The architectures whose models all pool the mean.
const MEANS: [&str; 3] = ["gemma-embedding", "jina-bert-v2", "t5encoder"];

/// The modules of layers behind the pooling (`2_Dense` and `3_Dense` of sentence-transformers), in
/// their order.
const DENSE: [&str; 2] = ["dense_2", "dense_3"];

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
            metadata.token_types();
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
    // EmbeddingGemma.
    Architecture {
        name: "gemma-embedding",
        class: "Gemma3TextModel",
        constants: &[("use_bidirectional_attention", Flag(true))],
        keys: &[
            BOTH_SIDES,
            ALWAYS_WINDOW,
            Key::number("rope.freq_base_swa", "rope_local_base_freq"),
            // The tensors show these sizes.
            unused("dense_2_feat_in"),
            unused("dense_2_feat_out"),
            unused("dense_3_feat_in"),
            unused("dense_3_feat_out"),
        ],
        adjust: |metadata| {
            let (file, key) = (metadata.file, metadata.key("attention.sliding_window"));
            if !file.has(&key) {
                return Err(file.missing(&key, "a positive integer"));
            }
            let width = metadata.size("head_dim");
            metadata.object.insert("query_pre_attn_scalar".to_owned(), width.into());
            metadata.dense_modules()?;
            metadata.pooling()
        },
        ..PLAIN
    },
    Architecture {
        name: "jina-bert-v2",
        class: "JinaBertModel",
        norms: AFTER_SUMS,
        keys: &[BOTH_SIDES],
        adjust: |metadata| {
            metadata.token_types();
            metadata.jina()?;
            metadata.pooling()
        },
        ..PLAIN
    },
    Architecture {
        name: "llama-embed",
        class: "LlamaBidirectionalModel",
        is_interleaved: true,
        keys: &[BOTH_SIDES],
        ..PLAIN
    },
    Architecture {
        name: "modern-bert",
        class: "ModernBertModel",
        constants: &[
            ("norm_bias", HasTensor("output_norm.bias")),
            ("classifier_bias", HasTensor("cls.bias")),
        ],
        keys: &[
            BOTH_SIDES,
            Key::integer("attention.sliding_window", "local_attention"),
            Key::integer("attention.sliding_window_pattern", "global_attn_every_n_layers"),
            Key::number("rope.freq_base_swa", "local_rope_theta"),
        ],
        adjust: |metadata| {
            let (file, key) = (metadata.file, metadata.key("hidden_activation"));
            if let Some(name) = file.text(&key)? {
                metadata.set("hidden_activation", key, name);
            }
            metadata.class_pooling()?;
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
            metadata.token_types();
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
    /// Sets the number of the types of tokens. `llama-quantize` stores a table of one row as a
    /// vector.
    fn token_types(&mut self) {
        const TABLE: &str = "token_types.weight";
        let width = self.size("hidden_size");
        let elements = self.file.tensor(TABLE).map(|table| table.shape.iter().product::<usize>());
        if let Some(rows) = elements.and_then(|elements| (elements as u64).checked_div(width)) {
            self.set("type_vocab_size", format!("the rows of tensor {TABLE}"), rows);
        }
    }

    /// Sets the form of Jina Embeddings 2, and refuses that of the model for code.
    fn jina(&mut self) -> Result<(), GgufError> {
        const OF_CODE: &str = "blk.0.attn_q_norm.weight";
        self.object.insert("position_embedding_type".to_owned(), "alibi".into());
        self.object.insert("feed_forward_type".to_owned(), "geglu".into());
        if self.file.tensor(OF_CODE).is_none() {
            return Ok(());
        }
        let reason = format!(
            "tensor `{OF_CODE}` is one of the model for code, which is read from a folder alone"
        );
        Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into())
    }

    /// Sets the layers behind the pooling. A file without them is refused: it does not tell whether
    /// its model has none, and published models have them.
    fn dense_modules(&mut self) -> Result<(), GgufError> {
        let invalid = |reason: String| {
            GgufError::from(ModelFileError::invalid(self.file.path(), FORMAT)(reason))
        };
        let mut layers = Vec::new();
        for module in DENSE {
            let Some(tensor) = self.file.tensor(&format!("{module}.weight")) else { continue };
            let [outputs, inputs] = tensor.shape[..] else {
                return Err(invalid(format!("tensor `{module}.weight` is not a matrix")));
            };
            layers.push(json!({ "module": module, "outputs": outputs, "inputs": inputs }));
        }
        if layers.is_empty() {
            let reason = "tensors `dense_2.weight` and `dense_3.weight` are missing: convert the \
                          model with --sentence-transformers-dense-modules, or load its folder";
            return Err(invalid(reason.to_owned()));
        }
        self.object.insert("dense_modules".to_owned(), layers.into());
        Ok(())
    }

    /// Sets the pooling of vectors (`llama_pooling_type` of llama.h). Files of T5 and Jina may have
    /// none, and all published models pool the mean.
    pub(super) fn pooling(&mut self) -> Result<(), GgufError> {
        const FIELD: &str = "emb_pooler";
        const EXPECTED: &str = "1, the mean, or 2, the first token";
        let key = self.key("pooling_type");
        let name = match self.file.unsigned(&key)? {
            Some(1) => "mean",
            Some(2) => "cls",
            None | Some(0) if MEANS.contains(&self.architecture.name) => "mean",
            None | Some(0) => return Ok(()),
            // The rank by a classifier, whose class knows the pooling.
            Some(4) if self.classifies() => return Ok(()),
            Some(_) => return Err(self.file.unexpected(&key, EXPECTED)),
        };
        self.set(FIELD, key, name);
        Ok(())
    }
}
