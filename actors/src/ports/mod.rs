//! The traits through which actors reach what this crate does not know: the model and the text
//! side. Implementations live in the `playhouse` crate; the simulator brings its own.

pub mod executor;
pub mod text;

pub use executor::{ExecuteError, ExecutorFactory, KvContent, ModelExecutor, ModelInfo};
pub use text::{ChatPrompt, DecodeOptions, IncrementalDecoder, TextCodec, TextError};
