//! The port to the model: the code that a worker's device thread runs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AdapterLoader, EncoderFactory, KeptMemory};
use crate::logic::{
    kv_cache::KvSpec,
    request::{ids::Epoch, outputs::StepOutput, pooling_params::ModelHeads},
    scheduler::output::SchedulerOutput,
};

/// The facts that the engine needs about a loaded model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Number of logits of a token. Every token id is smaller.
    pub vocab_size: u32,
    /// Largest number of tokens of a sequence.
    pub max_model_len: usize,
    /// The contents of the KV cache, by group of layers.
    pub kv_spec: KvSpec,
    /// Number of blocks in the KV cache, including the null block.
    pub num_blocks: usize,
    /// Tokens that end an output.
    pub eos_token_ids: Vec<u32>,
    /// The heads that read the hidden states.
    pub heads: ModelHeads,
    /// Largest number of embeddings of one image or sound; 0 if the model takes none.
    pub max_item_embeds: usize,
    /// Whether the tokens of an image attend to those after them, so that one step must compute all
    /// of them.
    pub attends_within_items: bool,
    /// The most tokens of a request that the model computes in another way than longer ones.
    /// `None`: it computes all alike.
    pub short_context: Option<usize>,
    /// Whether all tokens of a prompt with an image attend to each other, so that one step must
    /// compute the whole prompt. The first item of a prompt then spans it.
    pub attends_within_prompts: bool,
}

impl ModelInfo {
    /// Returns the number of tokens that an output may have. Their ids are below it.
    #[must_use]
    pub fn scored_tokens(&self) -> u32 {
        self.vocab_size.saturating_sub(self.heads.num_unscored)
    }
}

/// Runs steps on one device. It lives on the worker's own OS thread. It keeps state for each
/// request (block tables, token histories) between steps. A new executor rebuilds this state from
/// `scheduled_new`.
pub trait ModelExecutor: Send {
    /// Computes one step and returns its output. A request's result must not depend on the other
    /// requests in the batch.
    ///
    /// # Errors
    /// [`ExecuteError`] if the whole step failed. The caller then replaces the executor.
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError>;
}

/// Creates executors. The weights and the KV arena outlive each executor. A new executor after a
/// crash therefore costs microseconds; the model is not loaded again.
pub trait ExecutorFactory: Send + Sync + 'static {
    /// Returns the facts about the loaded model.
    fn info(&self) -> &ModelInfo;

    /// Takes the KV cache from the executors of this epoch and of earlier epochs, including
    /// executors that an abandoned thread may still create. Their later use of the cache fails.
    /// This is called, from any thread, before a device thread that hangs is replaced. It must not
    /// wait for that thread.
    ///
    /// If the thread keeps the cache, the content is lost, and there is an empty new cache. No
    /// executor gets the new one before [`ExecutorFactory::forgotten`] is called. Until then each
    /// call returns [`KvContent::Lost`].
    ///
    /// # Errors
    /// [`ExecuteError::OutOfMemory`] if an abandoned thread holds the cache and there is no memory
    /// for a new one.
    fn reclaim(&self, _epoch: Epoch) -> Result<KvContent, ExecuteError> {
        Ok(KvContent::Kept)
    }

    /// Opens the new cache after a loss, because the caller has forgotten the lost content. `last`
    /// is the last epoch whose plans rely on that content: executors of that epoch and of earlier
    /// epochs get no new cache. Without a loss, nothing happens.
    fn forgotten(&self, _last: Epoch) {}

    /// Puts the KV cache into memory that outlives this process, if there is some, and returns that
    /// memory. Its directory has `num_words` words. This is called at most once, before the first
    /// executor is created, and after the process that used the memory before has ended. `None`,
    /// which is the default: the KV cache ends with the process.
    fn keep_kv_cache(&self, _num_words: usize) -> Option<Arc<dyn KeptMemory>> {
        None
    }

    /// Releases the KV cache's memory to the system until a step or
    /// [`ExecutorFactory::restore_kv_cache`] needs it again. The content is lost, so this is called
    /// only while no block holds anything. It may block for as long as a step takes.
    ///
    /// # Errors
    /// [`ExecuteError::Device`] if the executors cannot do this, which is the default.
    fn release_kv_cache(&self) -> Result<(), ExecuteError> {
        Err(ExecuteError::Device("these executors keep their KV cache".to_owned()))
    }

    /// Allocates the released memory again.
    ///
    /// # Errors
    /// [`ExecuteError::OutOfMemory`] if the memory is no longer available.
    fn restore_kv_cache(&self) -> Result<(), ExecuteError> {
        Ok(())
    }

    /// Returns the adapters beside the model, from which executors take those of their requests.
    /// By default there are none.
    fn adapters(&self) -> Option<Arc<dyn AdapterLoader>> {
        None
    }

    /// Returns the encoder of the model's images and sounds. By default there is none.
    fn encoder(&self) -> Option<Arc<dyn EncoderFactory>> {
        None
    }

    /// Returns a new executor for the steps of one epoch. This is called on the device thread.
    /// Executors of earlier epochs lose the KV cache, because a thread whose worker died may still
    /// compute a step. That step would write to blocks that now belong to other requests.
    ///
    /// # Errors
    /// [`ExecuteError::Device`] if the device is lost, or if an executor of a later epoch exists.
    fn create(&self, epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError>;
}

/// The content of a reclaimed KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvContent {
    /// The content is the same as before.
    Kept,
    /// The cache is empty. The old one is lost, because a thread that did not return holds it.
    Lost,
}

/// The reason why a step could not be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum ExecuteError {
    /// The device does not answer, or it returned an error.
    #[error("device error: {0}")]
    Device(String),
    /// The step does not fit the device's memory.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// The step names something that the executor does not know, or it breaks the executor's
    /// invariants.
    #[error("invalid step: {0}")]
    InvalidStep(String),
}
