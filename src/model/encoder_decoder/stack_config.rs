//! The parts of `config.json` that stacks of layers share.

use playhouse_kernels::Activation;

use crate::model::ModelError;
use crate::model::config::{ActivationName, ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Part, plain_activation};
use crate::model::weight_loader::WeightLoader;

/// Loads a linear layer: [`Linear::load`] for one that adapters may change and that may be
/// quantized, or [`Linear::of_media`].
pub(in crate::model) type LoadLinear =
    fn(&mut WeightLoader<'_>, &[Part], usize, bool) -> Result<Linear, ModelError>;

/// The norms of all layers: those of `nn.LayerNorm`.
pub(in crate::model) const NORM: NormConfig =
    NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// The sizes of the encoder or the decoder.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct StackConfig {
    pub(in crate::model) num_layers: usize,
    pub(in crate::model) num_heads: usize,
    pub(in crate::model) intermediate_size: usize,
}

impl StackConfig {
    /// Reads the fields of the encoder or the decoder, whose names contain `part`.
    pub(in crate::model) fn read(
        fields: &Fields,
        part: &str,
        hidden_size: usize,
    ) -> Result<Self, ConfigError> {
        let heads = format!("{part}_attention_heads");
        let num_heads = fields.required_size(&heads)?;
        if !hidden_size.is_multiple_of(2 * num_heads) {
            let expected = format!("a number of heads of even width: a divisor of {hidden_size}/2");
            return Err(fields.invalid(&heads, &expected));
        }
        Ok(Self {
            num_layers: fields.required_size(&format!("{part}_layers"))?,
            num_heads,
            intermediate_size: fields.required_size(&format!("{part}_ffn_dim"))?,
        })
    }
}

/// Reads the activation of all layers.
pub(in crate::model) fn activation(fields: &Fields) -> Result<Activation, ConfigError> {
    activation_in(fields, "activation_function")
}

/// Reads the activation of all layers, whose name is in `field`.
pub(in crate::model) fn activation_in(
    fields: &Fields,
    field: &str,
) -> Result<Activation, ConfigError> {
    let name = ActivationName::from_name(fields.text(field)?.unwrap_or("gelu"));
    let activation = name.and_then(plain_activation);
    activation.ok_or_else(|| fields.invalid(field, "an activation of transformers"))
}
