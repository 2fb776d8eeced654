//! Queries of a low rank.

/// Queries as the product of two matrices, with an RMS norm between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LowRankQueries {
    /// The outputs of the first matrix, whose name is that of queries.
    pub(crate) rank: usize,
    /// The module of the norm.
    pub(crate) norm: &'static str,
    /// The module of the second matrix.
    pub(crate) output: &'static str,
}
