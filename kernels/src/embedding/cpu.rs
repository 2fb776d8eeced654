//! A gather of rows, widened.

use burn::tensor::{Device, Tensor, TensorData};
use half::bf16;

use super::{EmbeddingStorage, EmbeddingTable};

/// Rows `token_ids` of the table.
pub(crate) fn embedding(table: &EmbeddingTable, token_ids: &[u32]) -> Tensor<2> {
    let hidden = table.hidden;
    let mut y: Vec<f32> = Vec::with_capacity(token_ids.len() * hidden);
    for id in token_ids {
        let id = *id as usize;
        assert!(id < table.vocab, "embedding: token id {id} is not below {}", table.vocab);
        let range = id * hidden..(id + 1) * hidden;
        match &table.storage {
            EmbeddingStorage::CpuF32(data) => y.extend_from_slice(&data[range]),
            EmbeddingStorage::CpuBf16(data) => {
                y.extend(data[range].iter().map(|bits| bf16::from_bits(*bits).to_f32()));
            }
        }
    }
    Tensor::from_data(TensorData::new(y, [token_ids.len(), hidden]), &Device::flex())
}
