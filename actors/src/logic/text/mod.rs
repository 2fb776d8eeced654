//! From drawn tokens to text: the end of an output, and the part of its text that may be released.

pub mod stop;
pub mod text_stream;
