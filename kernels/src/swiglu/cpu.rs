//! Rows over threads.

use burn_flex::FlexTensor;

use crate::tensors::{dense, dims2, from_rows, values};

/// `silu(gate) * up`.
pub(crate) fn swiglu(gate_up: FlexTensor) -> FlexTensor {
    let [rows, width] = dims2(&gate_up);
    assert!(width.is_multiple_of(2), "swiglu: width {width} must be even");
    let (gate_up, inter) = (dense(gate_up), width / 2);
    let mut y = Vec::with_capacity(rows * inter);
    for row in values(&gate_up).chunks_exact(width.max(1)) {
        let (gate, up) = row.split_at(inter);
        y.extend(gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u));
    }
    from_rows(y, rows, inter)
}
