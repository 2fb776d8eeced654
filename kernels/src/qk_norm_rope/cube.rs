//! The operation on a GPU: its parts one after another.

use std::ops::Range;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Shape, Slice};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::QkvHeads;
use crate::rms_norm::cube::normed;
use crate::rope::{RotaryTable, cube::rope};

/// Splits, normalises and rotates.
pub(crate) fn qk_norm_rope(
    qkv: CubeTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: &RotaryTable,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let [rows, width] = qkv.meta.shape().dims::<2>();
    heads.check([rows, width], positions, table);
    // Views of the same memory.
    let part = |columns: Range<usize>| {
        CubeBackend::float_slice(qkv.clone(), &[Slice::from(0..rows), Slice::from(columns)])
    };
    let turned = |columns: Range<usize>, norm: Option<_>| {
        let width = columns.len();
        let x = match norm {
            None => part(columns),
            Some(norm) => {
                let each = Shape::new([rows * width / heads.head_dim, heads.head_dim]);
                let x = CubeBackend::float_reshape(part(columns), each);
                CubeBackend::float_reshape(normed(x, norm, heads.eps), Shape::new([rows, width]))
            }
        };
        rope(x, positions, heads.head_dim, table)
    };
    let [q, k, v] = heads.columns();
    (turned(q, heads.q_norm.as_ref()), turned(k, heads.k_norm.as_ref()), part(v))
}
