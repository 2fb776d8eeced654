//! Token embedding (HF `nn.Embedding`).

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{EmbeddingTable, WeightView, embedding, profile::timed};

use super::Linear;
use crate::model::config::TABLE_PARTS;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// The vectors of all tokens of the vocabulary.
#[derive(Debug)]
pub(in crate::model) enum Embedding {
    Table(EmbeddingTable),
    /// The rows of the output layer's matrix.
    Tied(Arc<Linear>),
}

impl Embedding {
    /// Loads `{module}.weight`, `[vocab, hidden]`, as a table.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        vocab: usize,
        hidden: usize,
    ) -> Result<Self, ModelError> {
        table(loader, module, vocab, hidden).map(Self::Table)
    }

    /// Loads the tensors of `module` that are one table, one below the other: [`TABLE_PARTS`], of
    /// which each has `[rows, hidden]`.
    pub(in crate::model) fn of_parts(
        loader: &mut WeightLoader<'_>,
        module: &str,
        rows: [usize; 2],
        hidden: usize,
    ) -> Result<Self, ModelError> {
        let names = TABLE_PARTS.map(|part| format!("{module}.{part}"));
        let vocab = rows[0].saturating_add(rows[1]);
        let mut values = loader.values(&names[0], &[rows[0], hidden])?;
        let below = loader.values(&names[1], &[rows[1], hidden])?;
        // Growth by doubling would take twice the table.
        values.reserve_exact(below.len());
        values.extend(below);
        let (view, dtype) = (WeightView::F32(&values), loader.dtype());
        let table = EmbeddingTable::new(view, vocab, hidden, dtype, loader.device());
        table.map(Self::Table).map_err(refused(&names[0]))
    }

    /// Returns the vectors of `token_ids`, `[num_tokens, hidden]`.
    pub(in crate::model) fn forward(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        let hidden = timed("embedding", || match self {
            Self::Table(table) => embedding(table, token_ids),
            Self::Tied(lm_head) => lm_head.rows(token_ids),
        });
        adapters.embed(hidden, token_ids)
    }
}

/// Loads `{module}.weight`, `[vocab, hidden]`. A quantized matrix becomes a table of floats.
pub(in crate::model) fn table(
    loader: &mut WeightLoader<'_>,
    module: &str,
    vocab: usize,
    hidden: usize,
) -> Result<EmbeddingTable, ModelError> {
    let name = format!("{module}.weight");
    let matrix = loader.matrix(module, [vocab, hidden])?;
    let values = matrix.values(loader.dtype());
    let table = EmbeddingTable::new(values.view(), vocab, hidden, loader.dtype(), loader.device())
        .map_err(refused(&name))?;
    drop(values);
    loader.release(&matrix);
    loader.count(matrix.tensor_count, matrix.size_bytes);
    Ok(table)
}
