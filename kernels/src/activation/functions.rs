//! The functions on the CPU, on vectors.

use crate::simd::{Map, PairMap, Simd, exp, expm1, softplus, tanh};

/// `√(2 / π)`, twice.
pub(super) const GELU_TANH_SLOPE: f32 = 1.595_769_2;
/// The factor of x³ in `Activation::GeluTanh`.
pub(super) const GELU_TANH_CUBE: f32 = 0.044_715;
/// The slope of `Activation::QuickGelu`.
pub(super) const QUICK_GELU_SLOPE: f32 = 1.702;
/// The largest value of `Activation::GeluClipped`.
pub(super) const GELU_MAX: f32 = 10.0;
/// The slope of `Activation::LeakyRelu` below 0.
pub(super) const LEAK: f32 = 0.01;
/// From here on `Activation::Mish` is x in f32.
pub(super) const MISH_MAX: f32 = 20.0;
/// The mean of the normal distribution of `Activation::Laplace`: HF's rounding of `√½`.
#[allow(clippy::approx_constant)]
pub(super) const LAPLACE_MEAN: f32 = 0.707_107;
/// Its deviation.
pub(super) const LAPLACE_DEVIATION: f32 = 0.282_095;

/// With `k = 1 / (1 + TAIL_SLOPE · t)`, the tail of the normal distribution beyond t is
/// `e^(−t² / 2) · k · Σ TAIL[i] · k^i`. The coefficients interpolate it at Chebyshev nodes of k for
/// t up to 13.4. The relative error is below 3e-8 there, and the tail is 0 in f32 beyond.
pub(super) const TAIL: [f32; 9] = [
    0.107_720_98,
    0.107_537_42,
    0.101_847_46,
    0.071_920_44,
    0.108_081_58,
    -0.069_500_32,
    0.169_961_74,
    -0.126_531_63,
    0.028_962_359,
];
/// See [`TAIL`].
pub(super) const TAIL_SLOPE: f32 = 0.27;

/// Runs `$body` with `$f` bound to the map of an `Activation`, so that loops are compiled for
/// each.
macro_rules! with_map {
    ($activation:expr, $f:ident => $body:expr) => {
        match $activation {
            Activation::Silu => {
                let $f = functions::Silu;
                $body
            }
            Activation::Gelu => {
                let $f = functions::Gelu;
                $body
            }
            Activation::GeluTanh => {
                let $f = functions::GeluTanh;
                $body
            }
            Activation::QuickGelu => {
                let $f = functions::QuickGelu;
                $body
            }
            Activation::Relu => {
                let $f = functions::Relu;
                $body
            }
            Activation::ReluSquared => {
                let $f = functions::ReluSquared;
                $body
            }
            Activation::Sigmoid => {
                let $f = functions::Sigmoid;
                $body
            }
            Activation::Identity => {
                let $f = functions::Identity;
                $body
            }
            Activation::GeluClipped => {
                let $f = functions::GeluClipped;
                $body
            }
            Activation::LeakyRelu => {
                let $f = functions::LeakyRelu;
                $body
            }
            Activation::Relu6 => {
                let $f = functions::Relu6;
                $body
            }
            Activation::HardSwish => {
                let $f = functions::HardSwish;
                $body
            }
            Activation::Mish => {
                let $f = functions::Mish;
                $body
            }
            Activation::Tanh => {
                let $f = functions::Tanh;
                $body
            }
            Activation::Softplus => {
                let $f = functions::Softplus;
                $body
            }
            Activation::Laplace => {
                let $f = functions::Laplace;
                $body
            }
            Activation::XIelu { alpha_p, alpha_n, beta, eps } => {
                let $f = functions::XIelu { alpha_p, alpha_n, beta, eps };
                $body
            }
        }
    };
}
pub(super) use with_map;

/// The map `f(gate) · up`.
#[derive(Clone, Copy)]
pub(crate) struct Gate<F>(pub(crate) F);

impl<F: Map> PairMap for Gate<F> {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, gate: S::V, up: S::V) -> S::V {
        s.mul(self.0.map(s, gate), up)
    }
}

/// Returns `x · σ(slope · u)`.
#[inline(always)]
fn sigmoid_of<S: Simd>(s: S, x: S::V, slope: f32, u: S::V) -> S::V {
    let e = exp(s, s.mul(u, s.splat(-slope)));
    s.div(x, s.add(e, s.splat(1.0)))
}

/// Returns `max(x, 0)`; NaN stays NaN.
#[inline(always)]
fn positive<S: Simd>(s: S, x: S::V) -> S::V {
    s.max(s.splat(0.0), x)
}

/// `Activation::Silu`.
#[derive(Clone, Copy)]
pub(crate) struct Silu;

impl Map for Silu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        sigmoid_of(s, x, 1.0, x)
    }
}

/// `Activation::Gelu`, as `max(x, 0) − |x| · tail(|x|)`. Nothing cancels below 0 then.
#[derive(Clone, Copy)]
pub(super) struct Gelu;

impl Map for Gelu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let t = s.max(s.mul(x, s.splat(-1.0)), x);
        let (e, rest) = tail(s, t);
        s.fma(s.mul(s.mul(t, e), rest), s.splat(-1.0), positive(s, x))
    }
}

/// Returns two factors whose product is the tail of the normal distribution beyond t, which is at
/// least 0: `e^(−t² / 2)`, and the polynomial of [`TAIL`].
#[inline(always)]
fn tail<S: Simd>(s: S, t: S::V) -> (S::V, S::V) {
    let one = s.splat(1.0);
    let k = s.div(one, s.fma(t, s.splat(TAIL_SLOPE), one));
    let mut p = s.splat(TAIL[8]);
    for c in TAIL[..8].iter().rev() {
        p = s.fma(p, k, s.splat(*c));
    }
    (exp(s, s.mul(s.mul(t, t), s.splat(-0.5))), s.mul(p, k))
}

/// `Activation::GeluTanh`, as `x · σ(2 u)`, because `(1 + tanh u) / 2 = σ(2 u)`.
#[derive(Clone, Copy)]
pub(super) struct GeluTanh;

impl Map for GeluTanh {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let square = s.mul(x, s.splat(GELU_TANH_CUBE));
        let u = s.fma(s.mul(x, square), x, x);
        sigmoid_of(s, x, GELU_TANH_SLOPE, u)
    }
}

/// `Activation::QuickGelu`.
#[derive(Clone, Copy)]
pub(super) struct QuickGelu;

impl Map for QuickGelu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        sigmoid_of(s, x, QUICK_GELU_SLOPE, x)
    }
}

/// `Activation::Relu`.
#[derive(Clone, Copy)]
pub(super) struct Relu;

impl Map for Relu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        positive(s, x)
    }
}

/// `Activation::ReluSquared`.
#[derive(Clone, Copy)]
pub(super) struct ReluSquared;

impl Map for ReluSquared {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let x = positive(s, x);
        s.mul(x, x)
    }
}

/// `Activation::Sigmoid`.
#[derive(Clone, Copy)]
pub(super) struct Sigmoid;

impl Map for Sigmoid {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        sigmoid_of(s, s.splat(1.0), 1.0, x)
    }
}

/// `Activation::Identity`.
#[derive(Clone, Copy)]
pub(super) struct Identity;

impl Map for Identity {
    #[inline(always)]
    fn map<S: Simd>(self, _: S, x: S::V) -> S::V {
        x
    }
}

/// `Activation::GeluClipped`. The function is above −1, so its lower bound has no effect.
#[derive(Clone, Copy)]
pub(super) struct GeluClipped;

impl Map for GeluClipped {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.min(s.splat(GELU_MAX), Gelu.map(s, x))
    }
}

/// `Activation::LeakyRelu`.
#[derive(Clone, Copy)]
pub(super) struct LeakyRelu;

impl Map for LeakyRelu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.max(s.mul(x, s.splat(LEAK)), x)
    }
}

/// `Activation::Relu6`.
#[derive(Clone, Copy)]
pub(super) struct Relu6;

impl Map for Relu6 {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.min(s.splat(6.0), positive(s, x))
    }
}

/// `Activation::HardSwish`.
#[derive(Clone, Copy)]
pub(super) struct HardSwish;

impl Map for HardSwish {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let share = Relu6.map(s, s.add(x, s.splat(3.0)));
        s.div(s.mul(x, share), s.splat(6.0))
    }
}

/// `Activation::Mish`. With `n = e^x` and `m = n · (n + 2)`, `tanh(ln(1 + n)) = m / (m + 2)`.
#[derive(Clone, Copy)]
pub(super) struct Mish;

impl Map for Mish {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let (n, two) = (exp(s, s.min(s.splat(MISH_MAX), x)), s.splat(2.0));
        let m = s.mul(n, s.add(n, two));
        s.mul(x, s.div(m, s.add(m, two)))
    }
}

/// `Activation::Tanh`.
#[derive(Clone, Copy)]
pub(super) struct Tanh;

impl Map for Tanh {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        tanh(s, x)
    }
}

/// `Activation::Softplus`.
#[derive(Clone, Copy)]
pub(super) struct Softplus;

impl Map for Softplus {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        softplus(s, x)
    }
}

/// `Activation::Laplace`, by the tail t of the normal distribution: t below its mean, else 1 − t.
#[derive(Clone, Copy)]
pub(super) struct Laplace;

impl Map for Laplace {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let z = s.div(s.add(x, s.splat(-LAPLACE_MEAN)), s.splat(LAPLACE_DEVIATION));
        let (e, rest) = tail(s, s.max(s.mul(z, s.splat(-1.0)), z));
        let tail = s.mul(e, rest);
        let above = s.fma(tail, s.splat(-2.0), s.splat(1.0));
        s.add(tail, s.zero_below(above, z, s.splat(0.0)))
    }
}

/// `Activation::XIelu`.
#[derive(Clone, Copy)]
pub(super) struct XIelu {
    pub(super) alpha_p: f32,
    pub(super) alpha_n: f32,
    pub(super) beta: f32,
    pub(super) eps: f32,
}

impl Map for XIelu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let zero = s.splat(0.0);
        let minus_x = s.mul(x, s.splat(-1.0));
        let e = expm1(s, s.min(s.splat(self.eps), x));
        let below = s.mul(s.add(e, minus_x), s.splat(self.alpha_n));
        // Only where x is at most 0. A NaN stays, as it does in the square.
        let below = s.zero_below(below, minus_x, zero);
        let above = positive(s, x);
        let square = s.mul(above, s.splat(self.alpha_p));
        s.fma(square, above, s.fma(x, s.splat(self.beta), below))
    }
}
