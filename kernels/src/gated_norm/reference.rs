//! Straight loops in f64, with SiLU as the function of the gate.

/// The norm of a reference: weights of one group or of all features, groups, and the addend.
pub(crate) type Norm<'a> = (&'a [f32], usize, f32);

/// Gates and normalises one row.
pub(crate) fn gated_norm(
    x: &[f32],
    gate: &[f32],
    scale: f32,
    norm: Option<Norm<'_>>,
    norm_before_gate: bool,
) -> Vec<f64> {
    let mut y: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    if norm_before_gate {
        normalise(&mut y, norm);
    }
    for (y, gate) in y.iter_mut().zip(gate) {
        let gate = f64::from(*gate) * f64::from(scale);
        *y *= gate / (1.0 + (-gate).exp());
    }
    if !norm_before_gate {
        normalise(&mut y, norm);
    }
    y
}

fn normalise(y: &mut [f64], norm: Option<Norm<'_>>) {
    let Some((weight, num_groups, eps)) = norm else { return };
    let group = y.len() / num_groups;
    for (index, y) in y.chunks_exact_mut(group).enumerate() {
        let mean = y.iter().map(|y| y * y).sum::<f64>() / group as f64;
        for (i, y) in y.iter_mut().enumerate() {
            let weight = f64::from(weight[(index * group + i) % weight.len()]);
            *y *= weight / (mean + f64::from(eps)).sqrt();
        }
    }
}
