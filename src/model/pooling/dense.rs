//! A dense layer behind the pooling: `2_Dense` of sentence-transformers, and those of heads.

/// The activation of a dense layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseActivation {
    /// None.
    Identity,
    /// Hyperbolic tangent.
    Tanh,
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)`.
    Gelu,
    /// GELU by its approximation with tanh.
    GeluTanh,
    /// `x · σ(x)`.
    Silu,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `x`, or `0.01 · x` below 0.
    LeakyRelu,
    /// `max(x, 0)`, at most 6.
    Relu6,
    /// `x`, or `eˣ − 1` below 0.
    Elu,
    /// `x · tanh(ln(1 + eˣ))`.
    Mish,
    /// `ln(1 + eˣ)`.
    Softplus,
    /// `x · min(max(x + 3, 0), 6) / 6`.
    Hardswish,
    /// `x / (1 + |x|)`.
    Softsign,
    /// `−ln(1 + e⁻ˣ)`.
    LogSigmoid,
    /// A multiple of `x`, or of `eˣ − 1` below 0.
    Selu,
    /// `x`, from −1 to 1.
    Hardtanh,
    /// `x / 6 + 1 / 2`, from 0 to 1.
    Hardsigmoid,
    /// `x − tanh(x)`.
    Tanhshrink,
    /// `x`, or 0 within 0.5 of it.
    Hardshrink,
    /// `x` by 0.5 nearer to 0, or 0 within 0.5 of it.
    Softshrink,
}

/// The activations by their names in transformers (`ACT2FN`).
const NAMES: [(&str, DenseActivation); 9] = [
    ("linear", DenseActivation::Identity),
    ("tanh", DenseActivation::Tanh),
    ("relu", DenseActivation::Relu),
    ("gelu", DenseActivation::Gelu),
    ("gelu_new", DenseActivation::GeluTanh),
    ("gelu_fast", DenseActivation::GeluTanh),
    ("gelu_pytorch_tanh", DenseActivation::GeluTanh),
    ("silu", DenseActivation::Silu),
    ("swish", DenseActivation::Silu),
];
/// The activations by their classes in torch.
const CLASSES: [(&str, DenseActivation); 21] = [
    ("Identity", DenseActivation::Identity),
    ("Tanh", DenseActivation::Tanh),
    ("ReLU", DenseActivation::Relu),
    ("GELU", DenseActivation::Gelu),
    ("SiLU", DenseActivation::Silu),
    ("Sigmoid", DenseActivation::Sigmoid),
    ("LeakyReLU", DenseActivation::LeakyRelu),
    ("ReLU6", DenseActivation::Relu6),
    ("ELU", DenseActivation::Elu),
    ("Mish", DenseActivation::Mish),
    ("Softplus", DenseActivation::Softplus),
    ("Hardswish", DenseActivation::Hardswish),
    ("Softsign", DenseActivation::Softsign),
    ("LogSigmoid", DenseActivation::LogSigmoid),
    ("SELU", DenseActivation::Selu),
    // By default, it is ELU.
    ("CELU", DenseActivation::Elu),
    ("Hardtanh", DenseActivation::Hardtanh),
    ("Hardsigmoid", DenseActivation::Hardsigmoid),
    ("Tanhshrink", DenseActivation::Tanhshrink),
    ("Hardshrink", DenseActivation::Hardshrink),
    ("Softshrink", DenseActivation::Softshrink),
];

impl DenseActivation {
    /// The classes of torch that [`DenseActivation::of_torch`] knows.
    pub(super) const TORCH: &str = "Identity, Tanh, ReLU, GELU, SiLU, Sigmoid, LeakyReLU, ReLU6, \
         ELU, Mish, Softplus, Hardswish, Softsign, LogSigmoid, SELU, CELU, Hardtanh, Hardsigmoid, \
         Tanhshrink, Hardshrink or Softshrink of torch";

    /// Returns the activation that transformers calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// Returns the activation of a class of torch with its defaults.
    #[must_use]
    pub fn of_torch(class: &str) -> Option<Self> {
        CLASSES.iter().find(|(known, _)| *known == class).map(|(_, activation)| *activation)
    }

    /// Returns the function's value, computed in f64.
    #[must_use]
    pub fn of(self, x: f64) -> f64 {
        match self {
            Self::Identity => x,
            Self::Tanh => x.tanh(),
            Self::Relu => x.max(0.0),
            Self::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            Self::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::LeakyRelu => x.max(0.01 * x),
            Self::Relu6 => x.clamp(0.0, 6.0),
            Self::Elu if x > 0.0 => x,
            Self::Elu => x.exp_m1(),
            Self::Mish => x * softplus(x).tanh(),
            Self::Softplus => softplus(x),
            Self::Hardswish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
            Self::Softsign => x / (1.0 + x.abs()),
            Self::LogSigmoid => -softplus(-x),
            Self::Selu => {
                const ALPHA: f64 = 1.673_263_242_354_377_2;
                const SCALE: f64 = 1.050_700_987_355_480_5;
                SCALE * if x > 0.0 { x } else { ALPHA * x.exp_m1() }
            }
            Self::Hardtanh => x.clamp(-1.0, 1.0),
            Self::Hardsigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
            Self::Tanhshrink => x - x.tanh(),
            Self::Hardshrink => {
                if x.abs() > 0.5 {
                    x
                } else {
                    0.0
                }
            }
            Self::Softshrink => x - x.clamp(-0.5, 0.5),
        }
    }
}

/// `ln(1 + eˣ)`. It is `x` itself above 20, as in torch.
fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `act(W · x + b)`, or its norm, computed on the processor.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// `[outputs, inputs]`, row-major.
    pub weight: Vec<f32>,
    /// `[outputs]`, or empty.
    pub bias: Vec<f32>,
    /// Number of elements of `x`.
    pub inputs: usize,
    /// The activation.
    pub activation: DenseActivation,
    /// The norm of the outputs, if they are normalised.
    pub norm: Option<DenseNorm>,
}

impl Dense {
    /// Returns the number of outputs.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.weight.len() / self.inputs.max(1)
    }

    /// Returns the outputs for `x`, which has as many elements as the layer has inputs.
    #[must_use]
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let rows = self.weight.chunks_exact(self.inputs.max(1));
        let sums = rows.enumerate().map(|(output, row)| {
            let bias = self.bias.get(output).copied().unwrap_or_default();
            let products = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            self.activation.of(f64::from(bias) + products.sum::<f64>()) as f32
        });
        let outputs: Vec<f32> = sums.collect();
        match &self.norm {
            Some(norm) => norm.forward(&outputs),
            None => outputs,
        }
    }
}

/// `(x − mean) / sqrt(var + eps) · weight + bias`, computed on the processor.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseNorm {
    /// `[size]`.
    pub weight: Vec<f32>,
    /// `[size]`, or empty.
    pub bias: Vec<f32>,
    /// The number added to the variance.
    pub eps: f32,
}

impl DenseNorm {
    /// Returns the norm of `x`.
    #[must_use]
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let count = x.len().max(1) as f64;
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
        let squares = x.iter().map(|x| (f64::from(*x) - mean).powi(2));
        let scale = (squares.sum::<f64>() / count + f64::from(self.eps)).sqrt().recip();
        let normed = x.iter().zip(&self.weight).enumerate().map(|(i, (x, weight))| {
            let bias = self.bias.get(i).copied().unwrap_or_default();
            ((f64::from(*x) - mean) * scale * f64::from(*weight) + f64::from(bias)) as f32
        });
        normed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_a_product_a_bias_and_an_activation() {
        let mut dense = Dense {
            weight: vec![1.0, 2.0, -1.0, 0.5],
            bias: vec![0.0, 1.0],
            inputs: 2,
            activation: DenseActivation::Identity,
            norm: None,
        };
        assert_eq!((dense.outputs(), dense.forward(&[2.0, 4.0])), (2, vec![10.0, 1.0]));
        dense.activation = DenseActivation::Tanh;
        assert_eq!(dense.forward(&[0.0, 0.0]), [0.0, 1.0_f64.tanh() as f32]);
        dense.activation = DenseActivation::Relu;
        assert_eq!(dense.forward(&[1.0, -1.0]), [0.0, 0.0]);
        assert_eq!(dense.forward(&[1.0, 1.0]), [3.0, 0.5]);
    }

    /// The values of torch in float64.
    #[test]
    fn activations_are_those_of_torch() {
        let of = |name: &str, x: f64| DenseActivation::from_name(name).unwrap().of(x);
        let near = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-12, "{got}");
        near(of("gelu", 1.0), 0.841_344_746_068_543);
        near(of("gelu", -2.0), -0.045_500_263_896_358_4);
        near(of("gelu_new", 1.0), 0.841_191_990_608_301);
        near(of("silu", -1.0), -0.268_941_421_369_995);
        near(of("relu", -1.0), 0.0);
        assert_eq!(DenseActivation::from_name("elu"), None);
        let of = |class: &str, x: f64| DenseActivation::of_torch(class).unwrap().of(x);
        near(of("Sigmoid", -1.0), 0.268_941_421_369_995);
        near(of("LeakyReLU", -1.5), -0.015);
        near(of("ReLU6", 7.5), 6.0);
        near(of("ELU", -1.0), -0.632_120_558_828_558);
        near(of("Mish", -1.0), -0.303_401_461_374_109);
        near(of("Softplus", -1.0), 0.313_261_687_518_223);
        near(of("Hardswish", -1.0), -1.0 / 3.0);
        near(of("Softsign", -1.0), -0.5);
        assert_eq!((of("ELU", 2.0), of("Softplus", 1e3)), (2.0, 1e3));
        near(of("LogSigmoid", -1.0), -1.313_261_687_518_223);
        near(of("SELU", -1.0), -1.111_330_737_812_562_7);
        near(of("SELU", 2.0), 2.101_401_974_710_961);
        near(of("CELU", -1.0), -0.632_120_558_828_558);
        near(of("Hardtanh", -1.5), -1.0);
        near(of("Hardsigmoid", -1.0), 1.0 / 3.0);
        near(of("Tanhshrink", -1.0), -0.238_405_844_044_235);
        assert_eq!((of("Hardshrink", -0.5), of("Hardshrink", -1.0)), (0.0, -1.0));
        near(of("Softshrink", -1.25), -0.75);
        assert_eq!(of("Softshrink", 0.25), 0.0);
        assert_eq!(DenseActivation::of_torch("GLU"), None);
    }

    #[test]
    fn a_norm_has_the_mean_zero_and_the_deviation_one() {
        let norm = DenseNorm { weight: vec![1.0, 2.0], bias: vec![0.0, 1.0], eps: 0.0 };
        assert_eq!(norm.forward(&[3.0, 5.0]), [-1.0, 3.0]);
    }
}
