//! The positions that are added to the embeddings of encoder and decoder.

use std::ops::Range;

use burn::tensor::Tensor;
use playhouse_kernels::{EmbeddingTable, KernelError, WeightView, add, embedding, try_zeroed};

use super::plan::PositionPlan;
use crate::config::available_memory_bytes;
use crate::model::ModelError;
use crate::model::layers::embedding_table;
use crate::model::weight_loader::{WeightLoader, refused};

/// A vector for each position.
#[derive(Debug)]
pub(super) struct PositionTable {
    table: EmbeddingTable,
    /// The row of the first position.
    first: u32,
}

impl PositionTable {
    /// Loads the table of the stack `module`, `[num_positions, hidden]`. One of sines is made, if
    /// the checkpoint has none.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        plan: PositionPlan,
        module: &str,
        [num_positions, hidden]: [usize; 2],
    ) -> Result<Self, ModelError> {
        let module = format!("{module}.embed_positions");
        let stored = |loader: &mut WeightLoader<'_>, first: usize| {
            let table = embedding_table(loader, &module, num_positions + first, hidden)?;
            Ok(Self { table, first: first as u32 })
        };
        let values: Vec<f32> = match plan {
            PositionPlan::Learned { first } => return stored(loader, first),
            PositionPlan::Sinusoids if loader.has(&format!("{module}.weight")) => {
                return stored(loader, 0);
            }
            PositionPlan::Sinusoids => {
                let vector = |position| sinusoids(position, hidden);
                made(0..num_positions, hidden, vector).map_err(refused(&module))?
            }
            PositionPlan::SinusoidsFrom(first) => {
                let vector = |position| sinusoids_in_f32(position, hidden);
                made(first..first + num_positions, hidden, vector).map_err(refused(&module))?
            }
        };
        let (view, dtype) = (WeightView::F32(&values), loader.dtype());
        let table = EmbeddingTable::new(view, num_positions, hidden, dtype, loader.device());
        Ok(Self { table: table.map_err(refused(&module))?, first: 0 })
    }

    /// Returns `x`, `[num_tokens, hidden_size]`, with the vectors of its tokens' positions added.
    pub(super) fn added(&self, x: Tensor<2>, positions: &[u32]) -> Tensor<2> {
        if self.first == 0 {
            return add(x, embedding(&self.table, positions));
        }
        let rows: Vec<u32> = positions.iter().map(|position| position + self.first).collect();
        add(x, embedding(&self.table, &rows))
    }
}

/// Returns the vectors of positions, each of `width` elements.
///
/// # Errors
/// [`KernelError::OutOfMemory`] if they need more memory than the machine has free. The system
/// would grant it, and kill the process.
fn made<V: Iterator<Item = f32>>(
    positions: Range<usize>,
    width: usize,
    vector: impl Fn(usize) -> V,
) -> Result<Vec<f32>, KernelError> {
    const WHAT: &str = "the table of positions";
    let len = positions.len().saturating_mul(width);
    // Once here, and once in the table.
    let bytes = len.saturating_mul(2 * size_of::<f32>());
    if available_memory_bytes().is_some_and(|available| bytes as u64 > available) {
        return Err(KernelError::OutOfMemory { what: WHAT, bytes });
    }
    let mut table = try_zeroed(len, WHAT)?;
    for (row, position) in table.chunks_exact_mut(width.max(1)).zip(positions) {
        row.iter_mut().zip(vector(position)).for_each(|(to, from)| *to = from);
    }
    Ok(table)
}

/// Returns the vector of a position: HF `MarianSinusoidalPositionalEmbedding.create_weight`. The
/// sines of all wavelengths come first, then the cosines.
fn sinusoids(position: usize, width: usize) -> impl Iterator<Item = f32> {
    let angle =
        move |j: usize| position as f64 / 10_000_f64.powf(2.0 * (j / 2) as f64 / width as f64);
    let sines = (0..width).step_by(2).map(move |j| angle(j).sin() as f32);
    sines.chain((1..width).step_by(2).map(move |j| angle(j).cos() as f32))
}

/// Returns the vector of a position: HF `M2M100SinusoidalPositionalEmbedding.get_embedding`, which
/// computes angles in float32.
fn sinusoids_in_f32(position: usize, width: usize) -> impl Iterator<Item = f32> {
    let half = width / 2;
    let step = -(10_000_f64.ln() / (half as f64 - 1.0)) as f32;
    let angle = move |j: usize| position as f32 * (j as f32 * step).exp();
    let sines = (0..half).map(move |j| angle(j).sin());
    let cosines = (0..half).map(move |j| angle(j).cos());
    sines.chain(cosines).chain(std::iter::repeat_n(0.0, width % 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: impl Iterator<Item = f32>, expected: &[f32]) {
        let found: Vec<f32> = found.collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} and {expected}");
        }
    }

    /// The numbers are those of transformers.
    #[test]
    fn sinusoids_are_those_of_transformers() {
        let expected =
            [0.141_12, 0.138_798_1, 0.006_463_259, -0.989_992_5, 0.990_320_7, 0.999_979_1];
        assert_close(sinusoids(3, 6), &expected);
        let expected = [
            -0.997_166_5,
            -0.713_409,
            0.935_285_4,
            0.089_579_75,
            0.075_226_27,
            -0.700_747_9,
            -0.353_894_4,
            0.995_979_7,
        ];
        assert_close(sinusoids_in_f32(897, 8), &expected);
    }
}
