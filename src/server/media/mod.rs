//! Images, videos and sounds in requests: parts of messages are read, and their content is decoded
//! from data URIs, read from local files, or fetched.
//!
//! The content never reaches a chat template. In its place, a message has a part with nothing but
//! the kind, for example `{"type": "image"}`.

mod access;
mod addresses;
mod data_url;
mod fetch;
mod fields;
mod local_file;
mod location;
mod part_fields;
mod parts;

pub(super) use access::MediaAccess;
pub(super) use fields::media_kwargs;
pub(super) use parts::{AskedModel, MediaParts, working_bytes};
