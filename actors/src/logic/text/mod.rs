//! From drawn tokens to text: when an output ends, and the part of its text that may be released.

pub mod stop;
pub mod text_stream;
