//! The port to the model: what a worker's device thread runs.

use crate::logic::{ids::Epoch, outputs::StepOutput, scheduler_output::SchedulerOutput};

/// What the engine must know of a loaded model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Rows of the output matrix: token ids are below this.
    pub vocab_size: u32,
    /// Most tokens a sequence may have.
    pub max_model_len: usize,
    /// Tokens a KV cache block holds.
    pub block_size: usize,
    /// Blocks of the KV cache, the null block among them.
    pub num_blocks: usize,
    /// Tokens that end an output.
    pub eos_token_ids: Vec<u32>,
}

/// Runs steps on one device. Lives on the worker's own OS thread; keeps per-request state (block
/// tables, token histories) between steps, which a fresh executor rebuilds from `scheduled_new`.
pub trait ModelExecutor: Send {
    /// Computes one step. Results must not depend on what else is in the batch.
    ///
    /// # Errors
    /// [`ExecuteError`] when the step failed as a whole. The caller then replaces the executor.
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError>;
}

/// Makes executors over weights and a KV arena that outlive them: a new executor after a crash
/// costs microseconds, not a reload.
pub trait ExecutorFactory: Send + Sync + 'static {
    /// What is loaded.
    fn info(&self) -> &ModelInfo;

    /// Takes the KV cache away from the executors of this epoch and of those before, also from
    /// such as an abandoned thread has yet to make: what they do with it fails. Called before a
    /// device thread that hangs is replaced, from any thread; must not wait for that thread.
    ///
    /// Where the cache is left behind with its content, `forget` is called, once and before anybody can
    /// get another. It returns the last epoch whose plans count on what was there: executors of that
    /// epoch and of those before get no other cache.
    ///
    /// # Errors
    /// [`ExecuteError::OutOfMemory`] when the cache is held by a thread that was abandoned and
    /// there is no memory for another.
    fn reclaim(
        &self,
        _epoch: Epoch,
        _forget: &dyn Fn() -> Epoch,
    ) -> Result<KvContent, ExecuteError> {
        Ok(KvContent::Kept)
    }

    /// Gives the KV cache's memory back to the system until a step or
    /// [`ExecutorFactory::restore_kv_cache`] needs it again. Its content is lost: called while no
    /// block holds anything. May block for as long as a step takes.
    ///
    /// # Errors
    /// [`ExecuteError::Device`] by executors that cannot, as is the default.
    fn release_kv_cache(&self) -> Result<(), ExecuteError> {
        Err(ExecuteError::Device("these executors keep their KV cache".to_owned()))
    }

    /// Takes the memory that was given back.
    ///
    /// # Errors
    /// [`ExecuteError::OutOfMemory`] when it is not there any more.
    fn restore_kv_cache(&self) -> Result<(), ExecuteError> {
        Ok(())
    }

    /// A fresh executor, for the steps of one epoch. Called on the device thread. Those made for
    /// earlier epochs lose the KV cache, as a thread whose worker died may still have a step to
    /// compute: it would write to blocks that are others' by now.
    ///
    /// # Errors
    /// [`ExecuteError::Device`] when the device is lost, or an executor of a later epoch exists.
    fn create(&self, epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError>;
}

/// What a reclaimed KV cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvContent {
    /// What it held before.
    Kept,
    /// Nothing: the old one is lost with a thread that never came back.
    Lost,
}

/// Why a step could not be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExecuteError {
    /// The device does not answer, or answered with an error.
    #[error("device error: {0}")]
    Device(String),
    /// The step does not fit the device's memory.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// The step names what the executor does not know, or breaks its invariants.
    #[error("invalid step: {0}")]
    InvalidStep(String),
}
