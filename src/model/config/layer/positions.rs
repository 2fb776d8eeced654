//! Terms of scores that depend on the positions of query and key.

/// Biases of scores, one for each head and bucket of distances: HF
/// `T5Attention.compute_bias`, whose layers share the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DistanceBiasConfig {
    /// The module of the table, `[num_buckets, num_heads]`.
    pub(crate) module: &'static str,
    /// Number of buckets, for both sides together.
    pub(crate) num_buckets: usize,
    /// The distance from which on all have the last bucket.
    pub(crate) max_distance: usize,
    /// Whether keys after the query have no buckets, because no query sees them.
    pub(crate) is_causal: bool,
}

/// Terms of scores by contents and positions: HF `DisentangledSelfAttention`. All layers share the
/// table, of which each has its own projections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DisentangledConfig {
    /// The module of the table, `[2 * span, hidden_size]`.
    pub(crate) table: &'static str,
    /// The norm of its rows, if they are normalised.
    pub(crate) norm: Option<&'static str>,
    /// Half of its rows: those of one direction.
    pub(crate) span: usize,
    /// The distance below which each has a row of its own, twice. `None`: every distance has one.
    pub(crate) position_buckets: Option<usize>,
    /// The distance that has the last row, if distances share rows.
    pub(crate) max_distance: usize,
    /// The tensors of the layer with the biases of queries and of values, if keys have none.
    pub(crate) biases: Option<[&'static str; 2]>,
    /// The projection to the keys of positions, if queries are multiplied with some.
    pub(crate) keys: Option<PositionProjection>,
    /// The projection to the queries of positions, if keys are multiplied with some.
    pub(crate) queries: Option<PositionProjection>,
}

/// The projection of rows of a table of positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PositionProjection {
    /// That of tokens.
    OfTokens,
    /// A module of the layer.
    Module {
        /// Its name.
        name: &'static str,
        /// Whether it has a bias.
        has_bias: bool,
    },
}
