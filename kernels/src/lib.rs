//! Hot operations of the engine.

mod mapped_file;

pub use mapped_file::MappedFile;
