//! The traits through which actors reach the parts that this crate does not know: the model, the
//! text side, the grammars and the journal's disk. Implementations live in the `playhouse` crate.
//! The simulator has its own.

pub mod adapter;
pub mod encoder;
pub mod executor;
pub mod grammar;
pub mod journal;
pub mod kept_memory;
pub mod media;
pub mod profiler;
pub mod text;

pub use adapter::{AdapterCheckError, AdapterLoadError, AdapterLoader, Settled};
pub use encoder::{EncoderExecutor, EncoderFactory};
pub use executor::{ExecuteError, ExecutorFactory, KvContent, ModelExecutor, ModelInfo};
pub use grammar::{GrammarCompiler, GrammarError};
pub use journal::JournalDisk;
pub use kept_memory::KeptMemory;
pub use media::{
    ExpandedPrompt, MEDIA_IO_KWARGS, MediaError, MediaProcessor, MediaSource, RawMedia, ReadyMedia,
    expanded_prompt,
};
pub use profiler::{Handled, HandlerProfiler};
pub use text::{
    ChatPrompt, DecodeOptions, IncrementalDecoder, TextCodec, TextError, TokenizedChunks,
    TokenizedPair,
};
