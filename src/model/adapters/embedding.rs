//! Matrices of low rank of an embedding: PEFT's `lora.Embedding`.
//!
//! A is `[rank, vocab]`, and B is `[width, rank]`. The vector of a token becomes
//! `vector + scale · B · A[:, token]`, before the model multiplies vectors by a factor. An output
//! layer that shares the embedding's matrix stays as it is.

use burn::tensor::Tensor;
use playhouse_kernels::{
    EmbeddingTable, LoraPair, LoraSegment, LoraWeights, WeightView, add_lora, embedding,
};

use super::AdapterError;
use super::load::{Loading, Matrices, Tensors, shape_of};

/// Columns of A are padded to a multiple of this.
const LANES: usize = 16;

/// The matrices of one adapter, on the model's device.
#[derive(Debug)]
pub(super) struct EmbeddingLora {
    /// The column of A of each token, `[vocab, padded rank]`.
    columns: EmbeddingTable,
    /// B with the scale, after an identity in the place of A.
    product: LoraWeights,
    pub(super) rank: usize,
    pub(super) size_bytes: usize,
}

impl EmbeddingLora {
    /// Adds the products of tokens to their vectors, `[token_ids.len(), width]`.
    pub(super) fn add(&self, vectors: Tensor<2>, token_ids: &[u32]) -> Tensor<2> {
        let rows: Vec<u32> = (0..token_ids.len() as u32).collect();
        let segment = LoraSegment { weights: &self.product, rows: &rows };
        add_lora(vectors, embedding(&self.columns, token_ids), &[segment])
    }
}

impl Loading<'_> {
    /// Reads and packs the matrices of the embedding, which is `module`.
    pub(super) fn embedding_lora(
        &self,
        module: &str,
        tensors: &Tensors,
    ) -> Result<EmbeddingLora, AdapterError> {
        let [vocab, width] = shape_of(&self.sites.embedding);
        let Matrices { a, b, rank, scale, .. } = self.matrices(module, tensors, [width, vocab])?;
        let padded = rank.next_multiple_of(LANES);
        let (mut columns, mut identity) = (vec![0.0; vocab * padded], vec![0.0; rank * padded]);
        for (index, row) in a.chunks_exact(vocab).enumerate() {
            identity[index * padded + index] = 1.0;
            for (token, element) in row.iter().enumerate() {
                columns[token * padded + index] = *element;
            }
        }
        let failed = |source| AdapterError::Device { part: module.to_owned(), source };
        let columns = WeightView::F32(&columns);
        let columns = EmbeddingTable::new(columns, vocab, padded, self.dtype, self.device);
        let pair = LoraPair { a: &identity, b: &b, rank, scale, first_output: 0 };
        let product = LoraWeights::pack(&[pair], [width, padded], self.dtype, self.device);
        let (columns, product) = (columns.map_err(failed)?, product.map_err(failed)?);
        let size_bytes = vocab * padded * self.dtype.size_bytes() + product.size_bytes();
        Ok(EmbeddingLora { columns, product, rank, size_bytes })
    }
}
