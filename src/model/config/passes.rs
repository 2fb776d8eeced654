//! Several passes through the same layers.

/// The passes of a token through all layers. Each has keys and values of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passes {
    /// Their number, at least 1.
    pub(crate) count: usize,
    /// Whether the norm after the last layer follows each of them, and not only the last one.
    pub(crate) has_norms: bool,
}

impl Passes {
    /// One pass, as almost all families have.
    pub(crate) const ONE: Self = Self { count: 1, has_norms: false };
}
