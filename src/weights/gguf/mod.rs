//! Tensors of GGUF files: their names, the layout of their blocks, and the order of the rows of
//! rotated heads.

mod blocks;
mod names;
mod rotary_rows;

pub(super) use blocks::BlockFormat;
pub(super) use names::{ROPE_FREQS, hugging_face_name, stored_name};
pub(super) use rotary_rows::{RotaryHeads, RowOrder};

/// The accepted types of tensors.
pub(super) const ACCEPTED: &str = "F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K";
