//! The processors of single families.

pub(crate) mod whisper;
