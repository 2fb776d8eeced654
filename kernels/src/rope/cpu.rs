//! In place where the tensor is ours alone.

use burn_flex::FlexTensor;

use super::{RotaryStorage, RotaryTable};
use crate::tensors::{dense, dims2, from_rows, values};

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
    let mut y = values(&dense(x)).to_vec();
    for (row, position) in y.chunks_exact_mut(width.max(1)).zip(positions) {
        let position = *position as usize;
        assert!(position < table.max_position, "rope: position {position}");
        let angles = position * half..(position + 1) * half;
        for head in row.chunks_exact_mut(head_dim) {
            rotate(&mut head[..2 * half], &cos[angles.clone()], &sin[angles.clone()]);
        }
    }
    from_rows(y, tokens, width)
}

/// Rotates the pairs `(x[i], x[i + half])`.
fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
    }
}
