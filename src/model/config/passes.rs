//! Several passes through the same layers.

use super::ConfigError;
use super::file::Fields;

/// The most layers of all passes together.
const LAYERS_MAX: usize = 4_096;

/// The passes of a token through all layers. Each has keys and values of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passes {
    /// Their number, at least 1.
    pub(crate) count: usize,
    /// Whether the norm after the last layer follows each of them, and not only the last one.
    pub(crate) has_norms: bool,
    /// The module by which a token could leave before the last pass. It is not read.
    pub(crate) exit_gate: Option<&'static str>,
}

impl Passes {
    /// One pass, as almost all families have.
    pub(crate) const ONE: Self = Self { count: 1, has_norms: false, exit_gate: None };

    /// Reads the number of passes through `num_layers` layers, each with the norm behind it.
    pub(crate) fn read(
        fields: &Fields,
        field: &str,
        default: usize,
        num_layers: usize,
    ) -> Result<Self, ConfigError> {
        let count = fields.size(field)?.unwrap_or(default);
        if count.saturating_mul(num_layers) > LAYERS_MAX {
            let expected = format!("a number with at most {LAYERS_MAX} layers in all passes");
            return Err(fields.invalid(field, &expected));
        }
        Ok(Self { count, has_norms: true, exit_gate: None })
    }
}
