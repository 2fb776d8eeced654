//! Token embeddings: row `token_ids[t]` of a table.
//!
//! Table `[vocab, hidden]`, f32 or bf16; result `[num_tokens, hidden]` f32. Exact: elements are
//! copied or widened. Bytes moved: `num_tokens · hidden · (sizeof(table) + 4)`.
//!
//! There is no tensor argument that could choose the backend, so the table does.

pub(crate) mod cpu;
#[cfg(test)]
mod tests;

use burn::tensor::{Device, Tensor};

use crate::aligned::AlignedBuf;
use crate::device::require_cpu;
use crate::{KernelError, WeightDtype, WeightView};

/// An embedding table on its device.
#[derive(Debug)]
pub struct EmbeddingTable {
    storage: EmbeddingStorage,
    vocab: usize,
    hidden: usize,
}

/// Where the rows live, row-major.
#[derive(Debug)]
enum EmbeddingStorage {
    CpuF32(AlignedBuf<f32>),
    CpuBf16(AlignedBuf<u16>),
}

impl EmbeddingTable {
    /// Keeps the row-major `[vocab, hidden]` table as `dtype`.
    ///
    /// # Errors
    /// A view of another length, a device without kernels, or too little memory.
    pub fn new(
        view: WeightView<'_>,
        vocab: usize,
        hidden: usize,
        dtype: WeightDtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        const WHAT: &str = "embedding table";
        require_cpu(device, WHAT)?;
        KernelError::require(hidden > 0, WHAT, "hidden", 0, "at least 1")?;
        KernelError::require_len(WHAT, "view", view.len(), vocab.saturating_mul(hidden))?;
        let storage = match dtype {
            WeightDtype::F32 => {
                let mut data = AlignedBuf::zeroed(view.len(), WHAT)?;
                data.iter_mut().enumerate().for_each(|(i, x)| *x = view.f32_at(i));
                EmbeddingStorage::CpuF32(data)
            }
            WeightDtype::Bf16 => {
                let mut data = AlignedBuf::zeroed(view.len(), WHAT)?;
                data.iter_mut().enumerate().for_each(|(i, x)| *x = view.bf16_at(i).to_bits());
                EmbeddingStorage::CpuBf16(data)
            }
        };
        Ok(Self { storage, vocab, hidden })
    }

    /// Number of rows.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Width of a row.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.hidden
    }
}

/// Rows `token_ids` of the table, `[num_tokens, hidden]` f32.
///
/// # Panics
/// If a token id is not below the table's `vocab`.
#[must_use]
pub fn embedding(table: &EmbeddingTable, token_ids: &[u32]) -> Tensor<2> {
    cpu::embedding(table, token_ids)
}
