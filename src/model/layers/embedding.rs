//! Token embedding (HF `nn.Embedding`).

use burn::tensor::Tensor;
use playhouse_kernels::{EmbeddingTable, embedding};

use crate::model::ModelError;
use crate::model::load::{WeightLoader, refused};

/// A vector for each token of the vocabulary.
#[derive(Debug)]
pub(in crate::model) struct Embedding {
    table: EmbeddingTable,
}

impl Embedding {
    /// Loads `{module}.weight`, `[vocab, hidden]`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        vocab: usize,
        hidden: usize,
    ) -> Result<Self, ModelError> {
        let name = format!("{module}.weight");
        let tensor = loader.tensor(&name, &[vocab, hidden])?;
        let view = tensor.values();
        let table =
            EmbeddingTable::new(view.view(), vocab, hidden, loader.dtype(), loader.device())
                .map_err(refused(&name))?;
        loader.loaded(&tensor);
        Ok(Self { table })
    }

    /// `[num_tokens, hidden]`.
    pub(in crate::model) fn forward(&self, token_ids: &[u32]) -> Tensor<2> {
        embedding(&self.table, token_ids)
    }
}
