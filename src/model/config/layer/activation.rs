//! The activation of a feed-forward part, by its name in transformers (`ACT2FN`).

use crate::model::config::ConfigError;
use crate::model::config::file::Fields;
use crate::model::family::MlpRule;

/// An activation of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivationName {
    /// `x · σ(x)`.
    Silu,
    /// `x · Φ(x)`.
    Gelu,
    /// GELU by its approximation with tanh.
    GeluTanh,
    /// `x · σ(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    ReluSquared,
    /// `x · Φ(x)`, at most 10.
    GeluClipped,
    /// `max(x, x / 100)`.
    LeakyRelu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x / 6 · min(max(x + 3, 0), 6)`.
    HardSwish,
    /// `x · tanh(ln(1 + e^x))`.
    Mish,
    /// `tanh x`.
    Tanh,
    /// `σ(x)`.
    Sigmoid,
    /// The normal distribution around 0.707107 with the deviation 0.282095.
    Laplace,
    /// x itself.
    Linear,
    /// xIELU, whose two slopes are weights of each layer.
    XIelu,
}

/// The activations by their names.
const NAMES: [(&str, ActivationName); 22] = [
    ("silu", ActivationName::Silu),
    ("swish", ActivationName::Silu),
    ("gelu", ActivationName::Gelu),
    ("gelu_python", ActivationName::Gelu),
    ("gelu_new", ActivationName::GeluTanh),
    ("gelu_fast", ActivationName::GeluTanh),
    ("gelu_pytorch_tanh", ActivationName::GeluTanh),
    ("gelu_python_tanh", ActivationName::GeluTanh),
    ("gelu_accurate", ActivationName::GeluTanh),
    ("gelu_10", ActivationName::GeluClipped),
    ("quick_gelu", ActivationName::QuickGelu),
    ("relu", ActivationName::Relu),
    ("relu2", ActivationName::ReluSquared),
    ("relu6", ActivationName::Relu6),
    ("leaky_relu", ActivationName::LeakyRelu),
    ("hardswish", ActivationName::HardSwish),
    ("mish", ActivationName::Mish),
    ("tanh", ActivationName::Tanh),
    ("sigmoid", ActivationName::Sigmoid),
    ("laplace", ActivationName::Laplace),
    ("linear", ActivationName::Linear),
    ("xielu", ActivationName::XIelu),
];

impl ActivationName {
    /// Returns the activation that transformers calls `name`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }
}

/// Returns the names of activations in words, xIELU only `with_weights`.
pub(super) fn accepted(with_weights: bool) -> String {
    let fits = |activation| with_weights || activation != ActivationName::XIelu;
    let names = NAMES.iter().filter(|(_, activation)| fits(*activation));
    format!("one of {}", names.map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
}

/// Reads the activation.
pub(super) fn read(config: &Fields, rule: MlpRule) -> Result<ActivationName, ConfigError> {
    let name = config.text(rule.field)?.unwrap_or(rule.activation);
    let activation = ActivationName::from_name(name);
    // The gate of an MLP has no xIELU in any family, and its slopes would have no names.
    let fits = |activation: &ActivationName| !rule.is_gated || *activation != ActivationName::XIelu;
    activation.filter(fits).ok_or_else(|| config.invalid(rule.field, &accepted(!rule.is_gated)))
}
