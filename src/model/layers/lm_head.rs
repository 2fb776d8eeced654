//! The output layer: from hidden states to logits (`lm_head` of HF's `…ForCausalLM` classes).

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{profile::timed, select_rows};

use super::Linear;
use crate::model::weight_loader::WeightLoader;
use crate::model::{LmHead, ModelError};

/// One product with a matrix `[vocab, hidden]`, which an embedding may share.
#[derive(Debug)]
pub(in crate::model) struct LinearHead {
    weight: Arc<Linear>,
}

impl LinearHead {
    /// Loads `{module}.weight`, `[vocab, hidden]`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        vocab: usize,
        hidden: usize,
    ) -> Result<Self, ModelError> {
        let weight = Linear::lm_head(loader, module, hidden, vocab)?;
        Ok(Self { weight: Arc::new(weight) })
    }

    /// Returns the matrix if its rows are those of the checkpoint, so that an embedding may use it.
    pub(in crate::model) fn shared_rows(&self) -> Option<Arc<Linear>> {
        self.weight.has_rows().then(|| Arc::clone(&self.weight))
    }
}

impl LmHead for LinearHead {
    fn logits(&self, hidden: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        timed("lm_head", || self.weight.forward(select_rows(hidden, rows)))
    }

    fn mapped_bytes(&self) -> u64 {
        self.weight.mapped_bytes()
    }
}
