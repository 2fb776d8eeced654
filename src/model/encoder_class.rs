//! The classes of encoders, as data: a family of backbones with one head. A backbone is the decoder
//! of [`decoder`](super::decoder) with attention to both sides.

use super::family::{Bias, Family};

/// A class of HF whose backbone attends to both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncoderClass {
    /// Its entry in `architectures`.
    pub(crate) architecture: &'static str,
    pub(crate) family: &'static Family,
    pub(crate) head: EncoderHead,
}

/// The head of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncoderHead {
    /// None: hidden states become vectors.
    Vectors,
    /// The same, where a field names the pooling.
    Pooled(PoolingField),
    /// Classes of a text: `…ForSequenceClassification`.
    Sequence(ClassHead),
    /// Classes of each token: `…ForTokenClassification`.
    Tokens(ClassHead),
    /// Weights of the vocabulary: `…ForMaskedLM`, which SPLADE pools to a sparse vector
    /// (<https://arxiv.org/abs/2107.05720>). With another pooling in `modules.json`, the head is
    /// not read.
    MaskedLm(MaskedLmHead),
    /// A projection of each token (ColBERT, <https://arxiv.org/abs/2004.12832>): a matrix whose
    /// rows decide the width.
    TokenVectors {
        /// Its module.
        module: &'static str,
        /// Its module in other checkpoints.
        other: Option<&'static str>,
        /// Whether it has a bias. `None`: the checkpoint decides. Classes that may have one divide
        /// each vector by its length themselves.
        has_bias: Option<bool>,
    },
    /// None: the hidden state of each token is its vector, which the class divides by its length.
    /// Texts have no vector.
    TokenStates,
    /// A projection of each hidden state without a bias: a matrix whose rows decide the width.
    /// Texts and tokens have vectors.
    Projected {
        /// Its module.
        module: &'static str,
        /// The field that names the pooling.
        pooling: PoolingField,
    },
    /// Vectors of the tokens behind the documents and the query of one prompt (Jina Reranker 3).
    Listwise {
        /// The modules of two layers without biases. There is a ReLU between them.
        layers: [&'static str; 2],
        /// The token behind a document.
        document: &'static str,
        /// The token behind the query.
        query: &'static str,
    },
    /// A vector of the text, and a vector and a weight of each token (BGE-M3). The layers of tokens
    /// are in files beside the checkpoint.
    Threefold,
}

/// The layers from hidden states to classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassHead {
    /// The layers before the classifier.
    pub(crate) layers: &'static [HeadModule],
    /// The module of the classifier.
    pub(crate) classifier: &'static str,
    /// Whether the classifier has a bias.
    pub(crate) has_bias: bool,
    /// The field whose number divides logits.
    pub(crate) temperature: Option<&'static str>,
    /// The field that names the pooling. Without one, it is the first token.
    pub(crate) pooling: Option<PoolingField>,
}

/// A field that names a pooling. "cls" and "bos" are the first token, and "last" is the last one.
/// "mean" and "avg" are the mean before the layers. "late" is that of the classes of all tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolingField {
    pub(crate) field: &'static str,
    pub(crate) default: &'static str,
    /// The poolings of the class.
    pub(crate) accepted: &'static [&'static str],
}

/// A layer of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadModule {
    /// A matrix `[hidden_size, hidden_size]` and an activation.
    Dense { module: &'static str, bias: Bias, activation: HeadActivation },
    /// A norm of the kind that the backbone has.
    Norm { module: &'static str },
}

/// The activation of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadActivation {
    /// One that the class fixes, by its name in transformers.
    Fixed(&'static str),
    /// The one that this field names; by default the second one.
    Field(&'static str, &'static str),
}

/// The head of a masked language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaskedLmHead {
    /// The layer before the matrix, in classes that have one.
    pub(crate) transform: Option<LmTransform>,
    /// The module of the matrix to the vocabulary.
    pub(crate) decoder: &'static str,
    /// The module of its bias, and whether there is one.
    pub(crate) bias: (&'static str, Bias),
    /// Whether the matrix is that of the embedding, without the field `tie_word_embeddings`.
    pub(crate) is_tied: bool,
}

/// A layer, its activation, and a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LmTransform {
    /// The module of the layer.
    pub(crate) dense: &'static str,
    /// Whether the layer has a bias.
    pub(crate) bias: Bias,
    /// Its activation.
    pub(crate) activation: HeadActivation,
    /// The module of the norm.
    pub(crate) norm: &'static str,
}

impl ClassHead {
    /// Returns a head without layers before the classifier.
    pub(crate) const fn plain(classifier: &'static str) -> Self {
        Self { layers: &[], classifier, has_bias: true, temperature: None, pooling: None }
    }

    /// Returns the same head behind `layers`.
    pub(crate) const fn behind(self, layers: &'static [HeadModule]) -> Self {
        Self { layers, ..self }
    }

    /// Returns the same head with the pooling that a field names.
    pub(crate) const fn pooled_by(self, field: PoolingField) -> Self {
        Self { pooling: Some(field), ..self }
    }
}

/// A layer with a bias whose activation the class fixes.
pub(crate) const fn dense(module: &'static str, activation: &'static str) -> HeadModule {
    let activation = HeadActivation::Fixed(activation);
    HeadModule::Dense { module, bias: Bias::Always, activation }
}
