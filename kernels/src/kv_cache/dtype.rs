//! The formats of keys and values.

use std::fmt;

use crate::WeightDtype;

/// The format in which keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16, rounded to nearest, ties to even. Numbers from 65,520 on become infinite.
    /// Only on GPUs.
    F16,
    /// bfloat16, rounded to nearest, ties to even.
    Bf16,
    /// `round(x / scale)`, with one f32 `scale = max|x| / 127` for the key of a token and head, and
    /// another for the value (vLLM's `int8_per_token_head`). The error is at most `max|x| / 253`.
    Int8,
}

impl KvDtype {
    /// Returns the size of a number in bytes, without its share of a scale.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Int8 => 1,
        }
    }
}

impl From<WeightDtype> for KvDtype {
    /// Returns the format that loses nothing compared with weights of `dtype`.
    fn from(dtype: WeightDtype) -> Self {
        match dtype {
            WeightDtype::F32 => Self::F32,
            WeightDtype::F16 => Self::F16,
            WeightDtype::Bf16 => Self::Bf16,
        }
    }
}

impl fmt::Display for KvDtype {
    /// Writes vLLM's name of the format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::Int8 => "int8_per_token_head",
        })
    }
}
