//! The state that outlives every runner: the weights and the KV cache.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use playhouse_actors::{
    logic::request::ids::Epoch,
    ports::{ExecuteError, ExecutorFactory, KvContent, ModelExecutor, ModelInfo},
};
use playhouse_kernels::KernelError;

use super::{
    kv_arena::{KvArena, KvMemory, KvSettings},
    runner::{Constraints, ModelRunner},
    threads::ComputeThreads,
};
use crate::model::Model;

/// Creates runners over one loaded model. A new runner after a crash costs microseconds: the
/// weights stay loaded, and the KV cache keeps its content.
pub(crate) struct RunnerFactory {
    info: ModelInfo,
    model: Arc<Model>,
    kv_arena: KvArena,
    constraints: Constraints,
    threads: Mutex<ComputeThreads>,
}

impl RunnerFactory {
    /// Allocates the KV cache for a loaded model, which computes on `threads`. `constraints` may
    /// constrain its outputs.
    ///
    /// # Errors
    /// [`KernelError`] when it cannot be allocated.
    pub(crate) fn new(
        model: Arc<Model>,
        info: ModelInfo,
        kv_settings: KvSettings,
        constraints: Constraints,
        threads: ComputeThreads,
    ) -> Result<Self, KernelError> {
        let shape = model.kv_cache_shape(info.num_blocks, info.kv_spec.block_size);
        let queue = threads.queue();
        let kv_arena = KvArena::new(move || KvMemory::new(shape, &kv_settings, queue))?;
        Ok(Self { info, model, kv_arena, constraints, threads: Mutex::new(threads) })
    }

    /// Returns the counts of recorded and replayed steps over the current KV cache.
    #[cfg(all(test, feature = "wgpu"))]
    pub(super) fn step_graph_stats(&self) -> playhouse_kernels::StepGraphStats {
        self.kv_arena.step_graph_stats()
    }

    /// Lets later runners compute on threads that no abandoned runner occupies.
    fn leave_occupied_threads(&self) -> Result<(), ExecuteError> {
        let mut threads = self.threads.lock();
        let refused = |error: io::Error| {
            ExecuteError::Device(format!("threads to compute on could not be started: {error}"))
        };
        *threads = threads.unoccupied().map_err(refused)?;
        Ok(())
    }
}

impl ExecutorFactory for RunnerFactory {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn reclaim(&self, epoch: Epoch) -> Result<KvContent, ExecuteError> {
        // A failure here comes before a loss, so that each loss is reported.
        self.kv_arena.void(epoch);
        self.leave_occupied_threads()?;
        self.kv_arena.reclaim(epoch)
    }

    fn forgotten(&self, last: Epoch) {
        self.kv_arena.forgotten(last);
    }

    fn release_kv_cache(&self) -> Result<(), ExecuteError> {
        self.kv_arena.release();
        Ok(())
    }

    fn restore_kv_cache(&self) -> Result<(), ExecuteError> {
        self.kv_arena.restore()
    }

    fn create(&self, epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        let (model, kv_lease) = (Arc::clone(&self.model), self.kv_arena.lease(epoch)?);
        let threads = self.threads.lock().clone();
        let (constraints, block_size) = (self.constraints.clone(), self.info.kv_spec.block_size);
        Ok(Box::new(ModelRunner::new(model, kv_lease, threads, constraints, block_size)))
    }
}

impl std::fmt::Debug for RunnerFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunnerFactory").field("info", &self.info).finish_non_exhaustive()
    }
}
