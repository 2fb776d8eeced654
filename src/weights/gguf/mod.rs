//! Tensors of GGUF files: what they are called, how their blocks are laid out, in which order the
//! rows of rotated heads lie.

mod blocks;
mod names;
mod rotary_rows;

pub(super) use blocks::BlockFormat;
pub(super) use names::{ROPE_FREQS, hugging_face_name, stored_name};
pub(super) use rotary_rows::{RotaryHeads, RowOrder};

/// The types of tensors that are read.
pub(super) const ACCEPTED: &str = "F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K";
