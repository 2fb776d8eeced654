//! Rows of a tensor that an adapter replaces: embeddings and logits of saved modules.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;

/// Returns `y` with row `rows[i]` replaced by row `i` of `x`. Both have the same width. Exact.
///
/// # Panics
/// If the widths differ, `x` has another number of rows than `rows`, or an index is not below the
/// number of rows of `y`.
#[must_use]
pub fn set_rows(y: Tensor<2>, x: Tensor<2>, rows: &[u32]) -> Tensor<2> {
    let ([num_rows, width], x_shape) = (y.dims(), x.dims());
    assert_eq!(x_shape, [rows.len(), width], "set_rows: shape of x");
    for row in rows {
        assert!((*row as usize) < num_rows, "set_rows: row {row} of {num_rows}");
    }
    Tensor::from_dispatch(Dispatch::set_rows(y.into_dispatch(), x.into_dispatch(), rows))
}
