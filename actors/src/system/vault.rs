//! The part of a system that was loaded, and outlives every worker and KV cache manager: executors
//! with weights and KV arena, the directory of the blocks, the text side, and the grammars.

use std::sync::{Arc, atomic::AtomicU64};

use parking_lot::Mutex;

use super::{
    adapters::AdapterLoads, config::SystemConfig, grammars::Grammars, text_jobs::TextJobs,
};
use crate::{
    logic::{
        kv_cache::{BlockDirectory, DirectoryUpdate, KvCacheManager},
        recovery::step_time::StepTime,
        request::ids::{Epoch, RequestId},
    },
    ports::{ExecuteError, ExecutorFactory, GrammarCompiler, KvContent, TextCodec},
    supervision::left_behind::LeftBehind,
};

/// The vault of one system.
pub(crate) struct Vault {
    /// Creates executors over the weights and the arena.
    pub(crate) executors: Arc<dyn ExecutorFactory>,
    blocks: Mutex<BlockDirectory>,
    /// Number of encoder cache managers so far.
    pub(crate) num_encoder_caches: AtomicU64,
    /// Known times of steps on the device.
    pub(crate) step_time: Mutex<StepTime>,
    /// Device threads that were left behind.
    pub(crate) left_behind: LeftBehind,
    /// The text side.
    pub(crate) codec: Arc<dyn TextCodec>,
    /// The text side's work, in turns.
    pub(crate) text_jobs: Arc<TextJobs>,
    /// The grammars.
    pub(crate) grammars: Arc<Grammars>,
    /// The adapters that are being loaded.
    pub(crate) adapter_loads: AdapterLoads,
}

/// The beginning of a new epoch's KV cache manager.
pub(crate) enum Inheritance {
    /// The manager of the epoch before, which lives on.
    Living(Box<KvCacheManager>),
    /// The directory, if that manager is dead.
    Directory(BlockDirectory),
}

impl Vault {
    /// Returns a vault whose KV cache is empty.
    pub(crate) fn new(
        config: &SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
        grammars: Arc<dyn GrammarCompiler>,
    ) -> Self {
        let (blocks, step_time) = Default::default();
        Self {
            executors,
            blocks,
            num_encoder_caches: AtomicU64::new(0),
            step_time,
            left_behind: LeftBehind::default(),
            text_jobs: Arc::new(TextJobs::new(Arc::clone(&codec), config.device)),
            codec,
            grammars: Arc::new(Grammars::new(grammars)),
            adapter_loads: AdapterLoads::default(),
        }
    }

    /// Updates the block directory. Only the KV cache manager of the current epoch changes it.
    pub(crate) fn update_blocks(&self, epoch: Epoch, updates: Vec<DirectoryUpdate>) {
        self.blocks.lock().update(epoch, updates);
    }

    /// Returns the beginning of a new epoch's KV cache manager. From now on that manager alone
    /// writes the directory: see [`BlockDirectory::begin_epoch`]. A manager that lives on from the
    /// epoch `before` keeps its knowledge, unless the content was lost meanwhile.
    pub(crate) fn begin_epoch(
        &self,
        epoch: Epoch,
        num_tokens: impl Fn(RequestId) -> Option<usize>,
        before: Option<KvCacheManager>,
    ) -> Inheritance {
        let mut directory = self.blocks.lock();
        let living = before.filter(|manager| directory.is_written_by(manager.epoch()));
        directory.begin_epoch(epoch, num_tokens);
        match living {
            Some(mut manager) => {
                manager.continue_in(epoch, directory.tails());
                Inheritance::Living(Box::new(manager))
            }
            None => Inheritance::Directory(directory.clone()),
        }
    }

    /// Takes the KV cache from a device thread that hangs. If the thread keeps the cache, its
    /// content is forgotten here before the executors open another cache.
    ///
    /// # Errors
    /// As [`ExecutorFactory::reclaim`].
    pub(crate) fn reclaim(&self, epoch: Epoch) -> Result<(), ExecuteError> {
        if self.executors.reclaim(epoch)? == KvContent::Lost {
            tracing::warn!("the KV cache was left behind with a thread that hangs");
            let last = self.blocks.lock().lose_content();
            self.executors.forgotten(last);
        }
        Ok(())
    }
}
