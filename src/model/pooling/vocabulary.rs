//! The head of a masked language model: a weight for each token of the vocabulary.

use std::{fmt, sync::Arc};

use crate::model::LmHead;

/// From hidden states to logits of the vocabulary, on the device. SPLADE pools them to a sparse
/// vector (<https://arxiv.org/abs/2107.05720>).
#[derive(Clone)]
pub struct VocabularyHead {
    /// The head.
    pub head: Arc<dyn LmHead>,
    /// Number of tokens of the vocabulary.
    pub vocab_size: usize,
}

impl fmt::Debug for VocabularyHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VocabularyHead")
            .field("vocab_size", &self.vocab_size)
            .finish_non_exhaustive()
    }
}

/// Two heads are equal if they are the same one.
impl PartialEq for VocabularyHead {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.head, &other.head)
    }
}
