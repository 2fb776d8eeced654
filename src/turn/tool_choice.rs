//! Whether the model calls tools.

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ToolChoice {
    /// It does not: all output is content.
    #[default]
    None,
    /// It may.
    Auto,
    /// It may, but only the request's own tools.
    Allowed,
    /// It calls at least one.
    Required,
    /// It calls this one, once.
    Named(String),
}
