//! The normalized transformer, nGPT (<https://arxiv.org/abs/2410.01131>): HF `DoryForCausalLM`.

/// The learned vectors of a normalized transformer, beside its matrices. Hidden states have norms
/// of 1.
///
/// | vector | shape | effect |
/// |---|---|---|
/// | `queries` | `[q_size]` | factors of queries, behind their rotation: its squares |
/// | `gate` | `[o_size]` | factors of the gates of attention, before the sigmoid: its squares |
/// | `inner` | `[intermediate_size]` | factors of the gate of an MLP, and of the gated value |
/// | `rates` | `[hidden_size]` | the way from a part's input to the norm of its output |
/// | `logits` | `[vocab_size]` | factors of logits |
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NgptConfig {
    pub(crate) queries: Factors,
    pub(crate) gate: Factors,
    pub(crate) inner: [Factors; 2],
    /// Those of attention, and of the MLP.
    pub(crate) rates: [Factors; 2],
    pub(crate) logits: Factors,
}

/// A vector of factors: a tensor times a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Factors {
    /// The tensor: its name in a layer, or that of the model.
    pub(crate) tensor: &'static str,
    /// The number.
    pub(crate) scale: f32,
}
