//! Token embeddings: row `token_ids[t]` of a table.
//!
//! Table `[vocab, hidden]`, f32 or bf16; result `[num_tokens, hidden]` f32. Exact: elements are
//! copied or widened. Bytes moved: `num_tokens · hidden · (sizeof(table) + 4)`.
//!
//! No tensor argument could choose the backend, so the table does. Where the output layer has the
//! same matrix, [`tied_embedding`] reads the rows from its packed form. The matrix is then in
//! memory once.

pub(crate) mod cpu;
#[cfg(test)]
mod tests;

use burn::tensor::{Device, Tensor};
use rayon::prelude::*;

use crate::aligned::AlignedBuf;
use crate::device::Place;
#[cfg(feature = "gpu")]
use crate::linear::{self, cube::CubeWeight};
use crate::{KernelError, LinearWeight, WeightDtype, WeightView};

/// An embedding table on its device.
#[derive(Debug)]
pub struct EmbeddingTable {
    storage: EmbeddingStorage,
    vocab: usize,
    hidden: usize,
}

/// The rows in memory, row-major.
#[derive(Debug)]
enum EmbeddingStorage {
    CpuF32(AlignedBuf<f32>),
    CpuBf16(AlignedBuf<u16>),
    /// In panels, like the weight of an output layer.
    #[cfg(feature = "gpu")]
    Cube(Box<CubeWeight>),
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
        let place = Place::of(device, WHAT)?;
        KernelError::require(hidden > 0, WHAT, "hidden", 0, "at least 1")?;
        KernelError::require_len(WHAT, "view", view.len(), vocab.saturating_mul(hidden))?;
        let storage = match (place, dtype) {
            (Place::Cpu, WeightDtype::F32) => {
                let mut data = AlignedBuf::zeroed(view.len(), WHAT)?;
                fill(&mut data, hidden, |i| view.f32_at(i));
                EmbeddingStorage::CpuF32(data)
            }
            (Place::Cpu, WeightDtype::F16) => {
                return Err(KernelError::not_on_cpu(WHAT, dtype.name()));
            }
            (Place::Cpu, WeightDtype::Bf16) => {
                let mut data = AlignedBuf::zeroed(view.len(), WHAT)?;
                fill(&mut data, hidden, |i| view.bf16_at(i).to_bits());
                EmbeddingStorage::CpuBf16(data)
            }
            #[cfg(feature = "gpu")]
            (Place::Cube(device), _) => {
                let packed = CubeWeight::new(&[view], hidden, dtype, device)?;
                EmbeddingStorage::Cube(Box::new(packed))
            }
        };
        Ok(Self { storage, vocab, hidden })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Returns the width of a row.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.hidden
    }
}

/// Sets element `i` to `value(i)`, with rows of `width` divided among the threads.
fn fill<T: Send>(data: &mut [T], width: usize, value: impl Fn(usize) -> T + Sync) {
    data.par_chunks_mut(width).enumerate().for_each(|(row, data)| {
        data.iter_mut().zip(row * width..).for_each(|(x, i)| *x = value(i));
    });
}

/// Returns rows `token_ids` of the table, `[num_tokens, hidden]` f32.
///
/// # Panics
/// If a token id is not below the table's `vocab`.
#[must_use]
pub fn embedding(table: &EmbeddingTable, token_ids: &[u32]) -> Tensor<2> {
    check(token_ids, table.vocab);
    #[cfg(feature = "gpu")]
    if let EmbeddingStorage::Cube(packed) = &table.storage {
        return linear::cube::tied_embedding(packed, token_ids);
    }
    cpu::embedding(table, token_ids)
}

/// Returns rows `token_ids` of an output layer's matrix `[vocab, hidden]`: `[num_tokens, hidden]`
/// f32.
///
/// # Panics
/// If a token id is not below `vocab`, or the weight does not have its rows
/// ([`LinearWeight::has_rows`]).
#[must_use]
pub fn tied_embedding(weight: &LinearWeight, token_ids: &[u32]) -> Tensor<2> {
    check(token_ids, weight.out_features());
    #[cfg(feature = "gpu")]
    if let Some(packed) = weight.on_gpu() {
        return linear::cube::tied_embedding(packed, token_ids);
    }
    cpu::tied_embedding(weight, token_ids)
}

/// Asserts that there are rows for all tokens.
fn check(token_ids: &[u32], vocab: usize) {
    for id in token_ids {
        assert!((*id as usize) < vocab, "embedding: token id {id} is not below {vocab}");
    }
}
