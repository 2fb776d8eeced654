//! Kimi's delta rule, whose states forget at a rate of their own in each row.

use playhouse_kernels::{CausalConv, KimiDecay, LinearHeads};

use super::{HEADS_MAX, LINE_FLOATS, TAPS_MAX};
use crate::model::config::file::Fields;
use crate::model::config::{ActivationName, ConfigError, SIZE_MAX};

/// Kimi's delta rule over the outputs of convolutions: HF `KimiLinearDeltaAttention`.
#[derive(Debug, Clone, PartialEq)]
pub struct KimiDeltaConfig {
    /// Heads of queries, keys and values.
    pub num_heads: usize,
    /// Elements of a query, of a key and of a value.
    pub head_dim: usize,
    /// Taps of the convolutions.
    pub kernel: usize,
    /// The activation after the convolutions.
    pub activation: ActivationName,
    /// The decays of states by their gates.
    pub decay: KimiDecay,
    /// The module that holds all others, and the name of the output projection.
    pub(crate) names: [&'static str; 2],
    /// Whether the gates of states and of outputs have two matrices, with the width of a head
    /// between them.
    pub has_low_rank_gates: bool,
}

impl KimiDeltaConfig {
    /// Returns the same if its sizes are bounded, else an error about `field`.
    pub(crate) fn checked(self, fields: &Fields, field: &str) -> Result<Self, ConfigError> {
        let Self { num_heads, head_dim, kernel, .. } = self;
        let widest = self.width().saturating_mul(3).saturating_mul(kernel.max(head_dim));
        if num_heads > HEADS_MAX || head_dim > HEADS_MAX || kernel > TAPS_MAX || widest > SIZE_MAX {
            let expected = format!("heads with a state of at most {SIZE_MAX} numbers in a layer");
            return Err(fields.invalid(field, &expected));
        }
        Ok(self)
    }

    /// Returns the elements of a token's queries, of its keys, and of its values.
    pub(crate) fn width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Returns the name of a module of the layer.
    pub(crate) fn module(&self, name: &str) -> String {
        format!("{}.{name}", self.names[0])
    }

    /// Returns the shape of the logarithms of rates.
    pub(crate) fn a_log_shape(&self) -> Vec<usize> {
        match self.has_low_rank_gates {
            true => vec![1, 1, self.num_heads, 1],
            false => vec![self.num_heads],
        }
    }

    pub(crate) fn heads(&self) -> LinearHeads {
        let Self { num_heads, head_dim, .. } = *self;
        LinearHeads { num_key_heads: num_heads, num_heads, key_dim: head_dim, value_dim: head_dim }
    }

    /// Returns the place of the heads' states in the layer's state, after the window of the
    /// convolutions. It begins a cache line.
    pub(crate) fn heads_at(&self) -> usize {
        CausalConv::state_len(3 * self.width(), self.kernel).next_multiple_of(LINE_FLOATS)
    }
}
