//! Jina Reranker 3: the class `JinaForRanking` of vLLM and of its authors' folder
//! (<https://arxiv.org/abs/2509.25085>).
//!
//! Qwen3, which reads a query and all documents as one prompt. A token stands behind each of them.
//! Two layers make a vector of its hidden state, and the vectors are compared.

use super::{EncoderClass, EncoderHead, Family, qwen3};

pub(super) const FAMILY: Family = Family {
    architecture: "JinaForRanking",
    model_type: "qwen3",
    models: "Jina Reranker 3",
    ..qwen3::FAMILY
};

pub(super) const CLASSES: &[EncoderClass] = &[EncoderClass {
    architecture: "JinaForRanking",
    family: &FAMILY,
    head: EncoderHead::Listwise {
        layers: ["projector.0", "projector.2"],
        document: "<|embed_token|>",
        query: "<|rerank_token|>",
    },
}];
