//! Images, videos and sounds of prompts: decoded, and made ready for the model's encoder.

pub(crate) mod audio;
mod decode;
mod embeds;
mod expand;
pub(crate) mod families;
mod frames;
pub(crate) mod processor;
mod service;
mod store;
#[cfg(test)]
pub(crate) mod test_family;

pub(crate) use embeds::EmbedsLayout;
pub(crate) use service::{MediaService, MediaSettings};
