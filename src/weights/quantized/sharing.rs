//! The elements of a matrix that share a scale, by the checkpoint's config.

use std::fmt;

/// Elements that share a scale. The number of scales does not tell them: the last block of a row or
/// a column may be partial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleSharing {
    /// All elements of a matrix.
    Tensor,
    /// Those of a row.
    Row,
    /// So many neighbours in a row.
    Group(usize),
    /// Blocks of so many rows and columns. The last ones may be partial.
    Block([usize; 2]),
}

impl fmt::Display for ScaleSharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor => f.write_str("one scale"),
            Self::Row => f.write_str("one scale a row"),
            Self::Group(size) => write!(f, "groups of {size}"),
            Self::Block([height, width]) => write!(f, "blocks of {height} x {width}"),
        }
    }
}

/// Returns the names of several, for logs and errors.
pub(super) fn listed(sharing: &[ScaleSharing]) -> String {
    let names: Vec<String> = sharing.iter().map(ToString::to_string).collect();
    names.join(" or ")
}
