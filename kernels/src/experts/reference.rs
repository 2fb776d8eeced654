//! Straight loops in f64, over the experts as they were before they were packed.

use super::ExpertActivation;
use crate::Choice;
use crate::activation;

/// An expert's matrices, row-major, and its biases.
pub(super) struct Expert {
    /// `[2 · intermediate, hidden]`, or without a gate `[intermediate, hidden]`
    pub(super) gate_up: Vec<f32>,
    /// `[hidden, intermediate]`
    pub(super) down: Vec<f32>,
    pub(super) gate_up_bias: Vec<f32>,
    pub(super) down_bias: Vec<f32>,
}

/// Returns the sum of a token's experts, and for each element the sum of the magnitudes in it.
pub(super) fn token(
    x: &[f32],
    choices: &[Choice],
    experts: &[Expert],
    activation: ExpertActivation,
    scale_input: bool,
) -> Vec<(f64, f64)> {
    let mut y = vec![(0.0, 0.0); x.len()];
    for Choice { expert, weight } in choices {
        let (expert, weight) = (&experts[*expert as usize], f64::from(*weight));
        let scale = if scale_input { weight } else { 1.0 };
        let x: Vec<f64> = x.iter().map(|x| scale * f64::from(*x)).collect();
        let gate_up = product(&x, &expert.gate_up, &expert.gate_up_bias);
        let up = gate_up.iter().skip(gate_up.len() - gate_up.len() / activation.inputs());
        let pairs = gate_up.iter().zip(up);
        let hidden: Vec<f64> =
            pairs.map(|((gate, _), (up, _))| activated(*gate, *up, activation)).collect();
        let weight = if scale_input { 1.0 } else { weight };
        let out = product(&hidden, &expert.down, &expert.down_bias);
        for (y, (out, magnitude)) in y.iter_mut().zip(out) {
            y.0 += weight * out;
            y.1 += weight.abs() * magnitude;
        }
    }
    y
}

fn product(x: &[f64], w: &[f32], bias: &[f32]) -> Vec<(f64, f64)> {
    let rows = w.chunks_exact(x.len()).zip(bias);
    rows.map(|(row, bias)| {
        let (mut sum, mut magnitude) = (f64::from(*bias), f64::from(bias.abs()));
        for (x, w) in x.iter().zip(row) {
            let term = x * f64::from(*w);
            sum += term;
            magnitude += term.abs();
        }
        (sum, magnitude)
    })
    .collect()
}

fn activated(gate: f64, up: f64, activation: ExpertActivation) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        ExpertActivation::Gated(f) => activation::reference::apply(gate, f) * up,
        ExpertActivation::Plain(f) => activation::reference::apply(up, f),
        ExpertActivation::ClampedSwiGlu { alpha, limit } => {
            let (alpha, limit) = (f64::from(alpha), f64::from(limit));
            let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
            gate * sigmoid(alpha * gate) * (up + 1.0)
        }
        ExpertActivation::LimitedSwiGlu { limit } => {
            let limit = f64::from(limit);
            (gate * sigmoid(gate)).min(limit) * up.clamp(-limit, limit)
        }
    }
}
