//! A gather of rows, widened, with rows divided among threads.

use burn::tensor::Tensor;

use super::{EmbeddingStorage, EmbeddingTable};
use crate::LinearWeight;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::tensors::{into_tensor, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::tensor;

/// Returns rows `token_ids` of the table.
pub(crate) fn embedding(table: &EmbeddingTable, token_ids: &[u32]) -> Tensor<2> {
    let hidden = table.hidden;
    gather(token_ids, hidden, |id, row| {
        let range = id * hidden..(id + 1) * hidden;
        match &table.storage {
            EmbeddingStorage::CpuF32(data) => row.copy_from_slice(&data[range]),
            EmbeddingStorage::CpuBf16(data) => {
                Isa::active().run(Widen { bits: &data[range], row });
            }
            #[cfg(feature = "gpu")]
            EmbeddingStorage::Cube(_) => unreachable!("the table is not on the CPU"),
        }
    })
}

/// Returns rows `token_ids` of the matrix that is packed as an output layer.
pub(crate) fn tied_embedding(weight: &LinearWeight, token_ids: &[u32]) -> Tensor<2> {
    gather(token_ids, weight.in_features(), |id, row| weight.copy_row(id, row))
}

fn gather(
    token_ids: &[u32],
    hidden: usize,
    copy_row: impl Fn(usize, &mut [f32]) + Sync + Send,
) -> Tensor<2> {
    let mut y = tensor(token_ids.len(), hidden);
    for_each_rows(values_mut(&mut y), hidden, |first, rows| {
        for (row, id) in rows.chunks_exact_mut(hidden).zip(&token_ids[first..]) {
            copy_row(*id as usize, row);
        }
    });
    into_tensor(y)
}

/// The conversion from bfloat16 bits to f32, exactly.
struct Widen<'a> {
    bits: &'a [u16],
    row: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (bits, bits_rest) = self.bits.as_chunks::<LANES>();
        let (row, row_rest) = self.row.as_chunks_mut::<LANES>();
        for (x, bits) in row.iter_mut().zip(bits) {
            s.store(x, s.widen(bits));
        }
        for (x, bits) in row_rest.iter_mut().zip(bits_rest) {
            *x = f32::from_bits(u32::from(*bits) << 16);
        }
    }
}
