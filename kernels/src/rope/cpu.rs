//! In place where the tensor is ours alone.

use burn_flex::FlexTensor;

use super::{RotaryStorage, RotaryTable};
use crate::tensors::{dense, dims2};
use crate::threads::for_each_rows;

/// Rotates every head of `x`.
pub(crate) fn rope(
    x: FlexTensor,
    positions: &[u32],
    head_dim: usize,
    table: &RotaryTable,
) -> FlexTensor {
    let RotaryStorage::Cpu { cos, sin } = &table.storage;
    let [tokens, width] = dims2(&x);
    assert_eq!(tokens, positions.len(), "rope: one position a token");
    assert!(width.is_multiple_of(head_dim), "rope: width {width} in heads of {head_dim}");
    assert!(table.rotary_dim <= head_dim, "rope: {} of {head_dim}", table.rotary_dim);
    let half = table.rotary_dim / 2;
    let mut x = dense(x);
    let (start, end) = x.layout().contiguous_offsets().unwrap_or((0, 0));
    // Copies first if someone else holds the tensor.
    let y = &mut x.storage_mut::<f32>()[start..end];
    assert!(
        positions.iter().all(|p| (*p as usize) < table.max_position),
        "rope: a position is outside the table of {}",
        table.max_position
    );
    for_each_rows(y, width, |first, rows| {
        for (row, position) in rows.chunks_exact_mut(width).zip(&positions[first..]) {
            let start = *position as usize * half;
            let (cos, sin) = (&cos[start..start + half], &sin[start..start + half]);
            for head in row.chunks_exact_mut(head_dim) {
                rotate(&mut head[..2 * half], cos, sin);
            }
        }
    });
    x
}

/// Rotates the pairs `(x[i], x[i + half])`.
fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
    }
}
