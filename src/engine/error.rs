//! Errors of a start, for the operator.

use std::path::PathBuf;

use playhouse_actors::{error::ActorError, system::JournalError};
use playhouse_kernels::KernelError;

use super::LoraError;
use crate::{
    config::InvalidSetting,
    hub::HubError,
    model::{ConfigError, DuplicateFamily, ModelError},
    parsers::{DuplicateParser, ReservedParser},
    text::TextLoadError,
    token_rules::{DuplicateTokenRule, TokenRuleError},
};

/// The reason why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The model's folder or file does not exist.
    #[error(
        "no model at {}: expected a folder with config.json, *.safetensors and tokenizer.json, a \
         GGUF file, or the name of a model on a hub (org/name)",
        .0.display()
    )]
    NoModel(PathBuf),
    /// A model by name is not in the cache and cannot be fetched.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The draft model's folder or file does not exist.
    #[error(
        "speculative_config: no model at {}: expected a folder with config.json and \
         *.safetensors, or a GGUF file",
        .0.display()
    )]
    NoDraftModel(PathBuf),
    /// The draft model cannot guess tokens of the model.
    #[error("speculative_config: the draft model {}: {what}", path.display())]
    DraftModel {
        /// The draft model.
        path: PathBuf,
        /// The difference, with both values.
        what: String,
    },
    /// This machine has no such device, or this build does not support it.
    #[error("device = \"{wanted}\": there is none; this machine has, for this build: {}", available.join(", "))]
    NoDevice {
        /// The device asked for.
        wanted: crate::config::Device,
        /// The devices of this machine and build.
        available: Vec<String>,
    },
    /// The compiler of CUDA kernels needs a part of NVIDIA's toolkit.
    #[error(
        "kernels for CUDA are compiled with `{needed}` of NVIDIA's toolkit, which is not {}. Set \
         CUDA_PATH to the toolkit's folder. `pip install nvidia-cuda-nvcc nvidia-cuda-runtime` has \
         it, too, in `site-packages/nvidia/cu13`",
        named.as_ref().map_or_else(
            || "in /usr/local/cuda and the like".to_owned(),
            |root| format!("in CUDA_PATH, {}", root.display())
        )
    )]
    NoCudaToolkit {
        /// The file in the toolkit's folder.
        needed: &'static str,
        /// The folder that `CUDA_PATH` names.
        named: Option<std::path::PathBuf>,
    },
    /// The model could not be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A configuration file of the model is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The settings do not fit the model.
    #[error(transparent)]
    Settings(#[from] InvalidSetting),
    /// The tokenizer or the chat template could not be loaded.
    #[error(transparent)]
    Text(#[from] TextLoadError),
    /// A file named in the settings could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// An adapter of the setting `lora_modules` could not be loaded.
    #[error("lora_modules: {0}")]
    Adapter(#[from] LoraError),
    /// An adapter of the setting `default_mm_loras` could not be loaded.
    #[error("default_mm_loras: {0}")]
    MediaAdapter(#[source] LoraError),
    /// Two model families were registered for one architecture.
    #[error(transparent)]
    DuplicateFamily(#[from] DuplicateFamily),
    /// Two parsers were registered by one name.
    #[error(transparent)]
    DuplicateParser(#[from] DuplicateParser),
    /// A parser was registered by a name that no setting can choose.
    #[error(transparent)]
    ReservedParser(#[from] ReservedParser),
    /// Two token rules were registered by one name.
    #[error(transparent)]
    DuplicateTokenRule(#[from] DuplicateTokenRule),
    /// A token rule could not be made for the model.
    #[error(transparent)]
    TokenRule(#[from] TokenRuleError),
    /// The memory is too small for a KV cache that can serve one request.
    #[error(
        "the KV cache would have {num_blocks} blocks of {block_size} tokens ({budget_bytes} bytes), \
         a request of max_model_len = {max_model_len} tokens needs {needed_blocks}: lower \
         max_model_len or raise kv_cache_memory_bytes, of which each of data_parallel_size = \
         {num_engines} engines gets a part"
    )]
    KvCacheTooSmall {
        /// Blocks that fit, including the null block.
        num_blocks: usize,
        /// Tokens of a block.
        block_size: usize,
        /// Bytes available for the cache.
        budget_bytes: u64,
        /// Tokens that one request may have.
        max_model_len: usize,
        /// Blocks needed, including the null block.
        needed_blocks: usize,
        /// Engines that share the memory.
        num_engines: usize,
    },
    /// A first step on the device failed.
    #[error("a first step on {device} failed: {why}")]
    WarmUp {
        /// The device's name.
        device: String,
        /// The device's error.
        why: String,
    },
    /// The KV cache could not be allocated.
    #[error("the KV cache could not be allocated: {0}")]
    KvCache(#[from] KernelError),
    /// The compute threads could not be started.
    #[error("threads could not be started: {0}")]
    Threads(#[source] std::io::Error),
    /// The journal could not be opened.
    #[error("journal {}: {source}", folder.display())]
    Journal {
        /// Its folder.
        folder: PathBuf,
        /// The reason.
        source: JournalError,
    },
    /// The journal needs tokens that a later process can compute again.
    #[error(
        "a journal on a GPU needs deterministic = true: without it, another process may draw other \
         tokens than clients have seen"
    )]
    JournalNeedsDeterminism,
    /// The recording could not be started.
    #[error("record: {}: {source}", folder.display())]
    Recording {
        /// The folder of recordings.
        folder: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The folder of the exchange of encoders' results cannot be used.
    #[error("ec_transfer_config: shared_storage_path {}: {source}", folder.display())]
    EncoderExchange {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The actors could not be started.
    #[error(transparent)]
    Actors(#[from] ActorError),
    /// Several engines were asked for where there can be one alone.
    #[error(
        "data_parallel_size = {0}: several engines are processes of `playhouse serve` without \
         single_process; expected 1"
    )]
    DataParallel(usize),
    /// The engine process did not load the model.
    #[error("{0}")]
    EngineProcess(String),
    /// The load panicked with this message. This is a bug.
    #[error("loading the model panicked: {0}")]
    Panicked(String),
}
