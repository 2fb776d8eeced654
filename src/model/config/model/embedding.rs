//! The path from tokens to hidden states.

/// The path from tokens to the hidden states before the first layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingConfig {
    /// The factor of tokens' embeddings.
    pub multiplier: f32,
    /// The rows of the tensors of `TABLE_PARTS`, in files that have the table so.
    pub(crate) table_parts: Option<[usize; 2]>,
    /// The factor of all inputs: embeddings of tokens, of media, and those that a request brings.
    pub(crate) input_multiplier: f32,
    /// The row of the table of learned positions that belongs to position 0. `None`: no table.
    pub learned_positions: Option<usize>,
    /// The table of the types of tokens, whose rows are added.
    pub(crate) token_types: Option<TokenTypes>,
    /// Whether embeddings are normalised.
    pub has_norm: bool,
    /// Whether positions and types are added before that norm, and not after it.
    pub(crate) is_summed_before_norm: bool,
    /// The matrices between embeddings of another width and hidden states.
    pub(crate) projections: Option<EmbeddingProjections>,
    /// The table of the types of tasks, whose first row is added to all tokens.
    pub(crate) task_types: Option<TokenTypes>,
    /// The matrix from the normalised sum, if that has another width, to hidden states.
    pub(crate) sum_projection: Option<SumProjection>,
}

/// The table of the types of tokens. Texts of a pair have different types.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenTypes {
    /// Its module.
    pub(crate) module: &'static str,
    /// Its rows.
    pub(crate) count: usize,
}

/// The matrices between embeddings and hidden states of different widths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EmbeddingProjections {
    /// The width of embeddings, and of the output layer's inputs.
    pub(crate) width: usize,
    /// The module from embeddings to hidden states, `[hidden_size, width]`.
    pub(crate) project_in: &'static str,
    /// The module from hidden states to the output layer, `[width, hidden_size]`.
    pub(crate) project_out: &'static str,
}

/// The matrix from the normalised sum of embeddings, positions and types to hidden states, with a
/// bias.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SumProjection {
    /// The width of the sum.
    pub(crate) width: usize,
    /// The module, `[hidden_size, width]`.
    pub(crate) module: &'static str,
}
