//! Straight loops in f64. Rust has no error function, so [`erf`] adds its series.

use super::Activation;

/// Computes `f(x)`.
pub(crate) fn activate(x: &[f32], activation: Activation) -> Vec<f64> {
    x.iter().map(|x| apply(f64::from(*x), activation)).collect()
}

/// Computes `f(gate) * up` for rows of `2 * inter`.
pub(crate) fn gated(gate_up: &[f32], inter: usize, activation: Activation) -> Vec<f64> {
    let mut y = Vec::new();
    for row in gate_up.chunks_exact(2 * inter) {
        for i in 0..inter {
            y.push(apply(f64::from(row[i]), activation) * f64::from(row[inter + i]));
        }
    }
    y
}

/// Computes `f(x)` of one element.
pub(crate) fn apply(x: f64, activation: Activation) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => x / 2.0 * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            x / 2.0 * (1.0 + u.tanh())
        }
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Relu => x.max(0.0),
        Activation::ReluSquared => x.max(0.0).powi(2),
        Activation::Sigmoid => sigmoid(x),
        Activation::Identity => x,
        Activation::GeluClipped => apply(x, Activation::Gelu).clamp(-10.0, 10.0),
        Activation::LeakyRelu => x.max(0.01 * x),
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::Mish => x * x.exp().ln_1p().min(1e3).tanh(),
        Activation::Tanh => x.tanh(),
        Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        #[allow(clippy::approx_constant)]
        Activation::Laplace => (1.0 + erf((x - 0.707107) / (0.282095 * 2f64.sqrt()))) / 2.0,
        Activation::XIelu { alpha_p, alpha_n, beta, eps } => {
            let [alpha_p, alpha_n, beta, eps] = [alpha_p, alpha_n, beta, eps].map(f64::from);
            if x > 0.0 {
                alpha_p * x * x + beta * x
            } else {
                (x.min(eps).exp_m1() - x) * alpha_n + beta * x
            }
        }
    }
}

/// Returns `erf x`, by the Taylor series `2 / √π · Σ (−1)^n x^(2 n + 1) / (n! (2 n + 1))`. Beyond 4
/// it is ±1 within 2e-8, and the series would lose digits.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}
