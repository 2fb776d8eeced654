//! Straight loops in f64.

/// Computes `silu(gate) * up` for rows of `2 * inter`.
pub(crate) fn swiglu(gate_up: &[f32], inter: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for row in gate_up.chunks_exact(2 * inter) {
        for i in 0..inter {
            let gate = f64::from(row[i]);
            y.push(gate / (1.0 + (-gate).exp()) * f64::from(row[inter + i]));
        }
    }
    y
}
