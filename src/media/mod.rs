//! Images and sounds of prompts: fetched, decoded, and made ready for the model's encoder.

pub(crate) mod audio;
pub(crate) mod families;
pub(crate) mod processor;
