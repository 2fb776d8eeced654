//! The names of the modules of a mixture of experts.

use super::MlpNames;

/// Names of the modules of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MoeNames {
    /// The matrix from hidden states to a score for each expert.
    pub(crate) router: &'static str,
    /// The tensor that is added to scores for the choice alone.
    pub(crate) correction_bias: &'static str,
    pub(crate) experts: ExpertNames,
    /// The expert of all tokens.
    pub(crate) shared: MlpNames,
    /// The matrix from hidden states to the factor of the shared expert, before its sigmoid.
    pub(crate) shared_gate: &'static str,
    /// The projections before and after all experts, in families whose experts have a width of
    /// their own.
    pub(crate) latent: [&'static str; 2],
    /// The tensor that is added to the output, in families that have one.
    pub(crate) output_bias: &'static str,
}

/// The modules of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertNames {
    /// Modules of their own: `{module}.{expert}.{name}`.
    Each { module: &'static str, inner: &'static [&'static str], down_proj: &'static str },
    /// All experts in one tensor `{name}.weight`, `[num_experts, outputs, inputs]`.
    Stacked { inner: &'static [&'static str], down_proj: &'static str },
    /// All experts in one tensor `{name}`, `[num_experts, inputs, outputs]`, and their biases in
    /// `{name}_bias`.
    Fused {
        inner: &'static str,
        down_proj: &'static str,
        /// Whether each output of the gate comes before the output that it gates.
        is_interleaved: bool,
    },
    /// All experts in one tensor `{name}`, `[num_experts, outputs, inputs]`.
    FusedByOutput { inner: &'static str, down_proj: &'static str },
    /// All experts one below the other in one matrix `{name}`, `[num_experts * width, hidden]`.
    /// That of the projection back has its transpose.
    Rows { inner: &'static [&'static str], down_proj: &'static str },
}
