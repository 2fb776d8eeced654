//! The part of a system that was loaded, and outlives every worker and KV cache manager: executors
//! with weights and KV arena, the directory of the blocks, the text side, and the grammars.

use std::sync::{Arc, atomic::AtomicU64};

use parking_lot::Mutex;

use super::{
    adapters::AdapterLoads, config::SystemConfig, grammars::Grammars, kept_blocks::KeptDirectory,
    text_jobs::TextJobs,
};
use crate::{
    logic::{
        kv_cache::{Adoption, BlockDirectory, DirectoryUpdate, KeptLayout, KvCacheManager},
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
    blocks: Mutex<Blocks>,
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

/// The block directory, and its copy in memory that outlives the process.
#[derive(Default)]
struct Blocks {
    directory: BlockDirectory,
    kept: Option<KeptDirectory>,
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

    /// Puts the KV cache into memory that outlives this process, if the executors have some, and
    /// adopts the content there. Called before the first actor starts.
    pub(crate) fn keep_blocks(&self, config: &SystemConfig, adoption: Adoption) {
        // A recording is of one process, and begins with an empty cache.
        if adoption == Adoption::Nothing || config.recorder.is_some() {
            return;
        }
        let layout = KeptLayout::new(&config.scheduler.kv_cache());
        let Some(memory) = self.executors.keep_kv_cache(layout.num_words()) else { return };
        let opened = KeptDirectory::open(layout, memory, adoption);
        if let Some((kept, directory)) = opened {
            *self.blocks.lock() = Blocks { directory, kept: Some(kept) };
        }
    }

    /// Updates the block directory. Only the KV cache manager of the current epoch changes it.
    /// `has_finished` says whether a step of this manager's has finished.
    pub(crate) fn update_blocks(
        &self,
        epoch: Epoch,
        updates: Vec<DirectoryUpdate>,
        has_finished: bool,
    ) {
        let Blocks { directory, kept } = &mut *self.blocks.lock();
        if let Some(kept) = kept.as_mut().filter(|_| directory.is_written_by(epoch)) {
            updates.iter().for_each(|update| kept.write(update));
            if has_finished {
                kept.proven();
            }
        }
        directory.update(epoch, updates);
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
        let Blocks { directory, kept } = &mut *self.blocks.lock();
        let living = before.filter(|manager| directory.is_written_by(manager.epoch()));
        for request in directory.begin_epoch(epoch, num_tokens) {
            kept.iter_mut().for_each(|kept| kept.tail_gone(request));
        }
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
            let mut blocks = self.blocks.lock();
            // The new cache ends with the process. The thread that hangs keeps the other one.
            if let Some(kept) = blocks.kept.take() {
                kept.end();
            }
            let last = blocks.directory.lose_content();
            drop(blocks);
            self.executors.forgotten(last);
        }
        Ok(())
    }
}
