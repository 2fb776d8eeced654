//! What outlives every runner: the weights and the KV cache.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use burn::tensor::Device;
use parking_lot::Mutex;
use playhouse_actors::{
    logic::ids::Epoch,
    ports::{ExecuteError, ExecutorFactory, ModelExecutor, ModelInfo},
};
use playhouse_kernels::{KernelError, KvCache, WeightDtype};
use rayon::{ThreadPool, ThreadPoolBuildError};

use super::{
    runner::{EpochFence, ModelRunner},
    threads::{self, PooledExecutor},
};
use crate::model::CausalLm;

/// Makes runners over one loaded model. A runner after a crash costs microseconds: weights are not
/// loaded again, and the KV cache keeps its content.
pub(crate) struct RunnerFactory {
    info: ModelInfo,
    model: Arc<dyn CausalLm>,
    kv_cache: Arc<Mutex<KvCache>>,
    /// Whose KV cache it is.
    newest_epoch: Arc<AtomicU64>,
    /// `None`: the process's common pool.
    pool: Option<Arc<ThreadPool>>,
}

impl RunnerFactory {
    /// Allocates the KV cache for a loaded model.
    ///
    /// # Errors
    /// [`KernelError`] when it cannot be allocated.
    pub(crate) fn new(
        model: Arc<dyn CausalLm>,
        info: ModelInfo,
        kv_cache_dtype: WeightDtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let shape = model.kv_cache_shape(info.num_blocks, info.block_size);
        let kv_cache = KvCache::new(shape, kv_cache_dtype, device)?;
        let (kv_cache, newest_epoch) = (Arc::new(Mutex::new(kv_cache)), Arc::default());
        Ok(Self { info, model, kv_cache, newest_epoch, pool: None })
    }

    /// Computes on `count` threads of its own from now on.
    ///
    /// # Errors
    /// When the system does not give that many.
    pub(crate) fn on_threads(mut self, count: usize) -> Result<Self, ThreadPoolBuildError> {
        self.pool = Some(threads::pool(count)?);
        Ok(self)
    }
}

impl ExecutorFactory for RunnerFactory {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn create(&self, epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        if self.newest_epoch.fetch_max(epoch.0, Ordering::SeqCst) > epoch.0 {
            let past = format!("epoch {} is past", epoch.0);
            return Err(ExecuteError::Device(past));
        }
        let fence = EpochFence { epoch, newest: Arc::clone(&self.newest_epoch) };
        let (model, kv_cache) = (Arc::clone(&self.model), Arc::clone(&self.kv_cache));
        let executor = Box::new(ModelRunner::new(model, kv_cache, self.info.block_size, fence));
        Ok(match &self.pool {
            Some(pool) => Box::new(PooledExecutor { executor, pool: Arc::clone(pool) }),
            None => executor,
        })
    }
}

impl std::fmt::Debug for RunnerFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunnerFactory").field("info", &self.info).finish_non_exhaustive()
    }
}
