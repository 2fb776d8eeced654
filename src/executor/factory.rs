//! The state that outlives every runner: the weights and the KV cache.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use playhouse_actors::{
    logic::{
        kv_cache::{KvKind, KvSpec},
        request::ids::Epoch,
    },
    ports::{
        AdapterLoader, EncoderFactory, ExecuteError, ExecutorFactory, KeptMemory, KvContent,
        ModelExecutor, ModelInfo,
    },
};
use playhouse_kernels::{KernelError, KvCacheShape};

use super::{
    adapters::AdapterStore,
    batch::KvSizes,
    drafters::{DraftCache, DraftSettings, Drafter, Drafts, HeadDrafter, ModelDrafter},
    encoder::{EncoderStore, Encoders},
    encoder_connector::EncoderExchange,
    execute_error,
    kept::{KeptCache, KeptFile},
    kv_arena::{KvArena, KvMemory, KvSettings},
    runner::{Constraints, KvLayout, ModelRunner},
    threads::ComputeThreads,
};
use crate::model::{DraftHead, KvPlace, Model};

/// Creates runners over one loaded model. A new runner after a crash costs microseconds: the
/// weights stay loaded, and the KV cache keeps its content.
pub(crate) struct RunnerFactory {
    info: ModelInfo,
    model: Arc<Model>,
    kv_arena: KvArena,
    kv_shape: KvCacheShape,
    kv_settings: KvSettings,
    /// The file in which the KV cache may outlive this process.
    kept_file: Mutex<Option<KeptFile>>,
    /// The KV cache's memory if it outlives this process.
    kept: OnceLock<Arc<KeptCache>>,
    kv_layout: KvLayout,
    constraints: Constraints,
    adapters: Option<Arc<AdapterStore>>,
    media: Option<Arc<EncoderStore>>,
    draft_settings: DraftSettings,
    draft: Option<(DraftWeights, DraftCache)>,
    threads: Mutex<ComputeThreads>,
}

/// The weights of a drafter, which are loaded beside the model.
#[derive(Debug, Clone)]
pub(crate) enum DraftWeights {
    /// A smaller model.
    Model(Arc<Model>),
    /// A head over the model's hidden states.
    Head(Arc<DraftHead>),
}

impl DraftWeights {
    /// Returns the shape of the drafter's KV cache.
    pub(crate) fn kv_cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape {
        match self {
            Self::Model(model) => model.kv_cache_shape(num_blocks, block_size),
            Self::Head(head) => head.kv_cache_shape(num_blocks, block_size),
        }
    }
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
        let num_layers = info.kv_spec.layers_per_block();
        let shape = model.kv_cache_shape(info.num_blocks, info.kv_spec.block_size);
        let shape = KvCacheShape { num_layers, ..shape };
        let queue = threads.queue();
        let of_cache = kv_settings.clone();
        let kv_arena = KvArena::new(move || KvMemory::new(shape, &of_cache, queue))?;
        let kv_layout = kv_layout(&info.kv_spec);
        let media = model.media.clone().map(|encoder| {
            let device = kv_settings.device.clone();
            Arc::new(EncoderStore::new(encoder, threads.clone(), device))
        });
        Ok(Self {
            info,
            model,
            kv_arena,
            kv_shape: shape,
            kv_settings,
            kept_file: Mutex::new(None),
            kept: OnceLock::new(),
            kv_layout,
            constraints,
            adapters: None,
            media,
            draft_settings: DraftSettings::default(),
            draft: None,
            threads: Mutex::new(threads),
        })
    }

    /// Returns the same factory. Its runners take the adapters of requests from `adapters`.
    pub(crate) fn with_adapters(self, adapters: Option<Arc<AdapterStore>>) -> Self {
        Self { adapters, ..self }
    }

    /// Lets the encoder exchange results with other engines.
    #[must_use]
    pub(crate) fn with_exchange(mut self, exchange: Option<EncoderExchange>) -> Self {
        if let Some(exchange) = exchange {
            self.media = self.media.map(|media| Arc::new(media.with_exchange(exchange)));
        }
        self
    }

    /// Lets runners guess tokens.
    #[must_use]
    pub(crate) fn with_drafts(self, draft_settings: DraftSettings) -> Self {
        Self { draft_settings, ..self }
    }

    /// Allocates the KV cache of a drafter with weights: that of [`DraftMethod::Loaded`].
    ///
    /// [`DraftMethod::Loaded`]: super::drafters::DraftMethod::Loaded
    ///
    /// # Errors
    /// [`KernelError`] when it cannot be allocated.
    pub(crate) fn with_draft(
        mut self,
        weights: DraftWeights,
        kv_settings: &KvSettings,
    ) -> Result<Self, KernelError> {
        if let DraftWeights::Head(head) = &weights {
            // Places for more guesses would stay empty.
            let most = &mut self.draft_settings.num_speculative_tokens;
            *most = head.max_guesses.min(*most);
        }
        let KvSpec { block_size, groups } = &self.info.kv_spec;
        // The start has checked that there is one.
        let group = groups.iter().position(|group| group.kind == KvKind::Full).unwrap_or(0);
        let shape = weights.kv_cache_shape(self.info.num_blocks, *block_size);
        // Steps of a drafter are small, so their recordings would not pay.
        let settings = KvSettings { step_graph_bytes: 0, ..kv_settings.clone() };
        let kv_memory = KvMemory::new(shape, &settings, self.threads.lock().queue())?;
        let kv_memory = Arc::new(Mutex::new(kv_memory));
        self.draft = Some((weights, DraftCache { kv_memory, group, block_size: *block_size }));
        Ok(self)
    }

    /// Lets the KV cache outlive this process in a file in memory, if the actors ask for it. The
    /// device is the CPU.
    pub(crate) fn may_keep_in(&self, file: KeptFile) {
        *self.kept_file.lock() = Some(file);
    }

    /// Moves the KV cache to the file.
    fn keep_in(&self, file: KeptFile, num_words: usize) -> Result<Arc<KeptCache>, ExecuteError> {
        let (shape, settings) = (self.kv_shape, self.kv_settings.clone());
        let kept = KeptCache::new(file, num_words, shape.bytes(settings.dtype))
            .map_err(|error| ExecuteError::Device(error.to_string()))?;
        let (queue, of_arena) = (self.threads.lock().queue(), Arc::clone(&kept));
        let open = move || KvMemory::shared(shape, &settings, queue, of_arena.arena()?);
        self.kv_arena.move_to(open).map_err(execute_error)?;
        Ok(kept)
    }

    /// Returns the drafter with weights of a new executor.
    fn drafter(&self, threads: &ComputeThreads) -> Option<Box<dyn Drafter>> {
        let (weights, cache) = self.draft.clone()?;
        let threads = threads.clone();
        Some(match weights {
            DraftWeights::Model(model) => Box::new(ModelDrafter::new(model, cache, threads)),
            DraftWeights::Head(head) => Box::new(HeadDrafter::new(head, cache, threads)),
        })
    }

    /// Returns the counts of recorded and replayed steps over the current KV cache.
    #[cfg(all(test, any(feature = "cuda", feature = "wgpu")))]
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

fn kv_layout(spec: &KvSpec) -> KvLayout {
    let KvSpec { block_size, groups } = spec;
    let sizes = KvSizes { block_size: *block_size, num_groups: groups.len() };
    let num_layers: usize = groups.iter().map(|group| group.layers.len()).sum();
    let mut places = vec![KvPlace::default(); num_layers];
    for (group, of_group) in groups.iter().enumerate() {
        for (layer, &of_model) in of_group.layers.iter().enumerate() {
            places[of_model] = KvPlace { group, layer };
        }
    }
    KvLayout { sizes, places: places.into() }
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

    fn keep_kv_cache(&self, num_words: usize) -> Option<Arc<dyn KeptMemory>> {
        let file = self.kept_file.lock().take()?;
        if self.draft.is_some() || self.kv_shape.num_layers == 0 {
            // A drafter's cache ends with the process, and so would its guesses be worse.
            return None;
        }
        match self.keep_in(file, num_words) {
            Ok(kept) => Some(Arc::clone(self.kept.get_or_init(|| kept)) as Arc<dyn KeptMemory>),
            Err(error) => {
                tracing::warn!(%error, "the KV cache ends with its process");
                None
            }
        }
    }

    fn release_kv_cache(&self) -> Result<(), ExecuteError> {
        self.kv_arena.release();
        if let Some(kept) = self.kept.get() {
            kept.free_arena();
        }
        Ok(())
    }

    fn restore_kv_cache(&self) -> Result<(), ExecuteError> {
        self.kv_arena.restore()
    }

    fn adapters(&self) -> Option<Arc<dyn AdapterLoader>> {
        let adapters = Arc::clone(self.adapters.as_ref()?);
        Some(adapters)
    }

    fn encoder(&self) -> Option<Arc<dyn EncoderFactory>> {
        let media = Arc::clone(self.media.as_ref()?);
        Some(Arc::new(Encoders(media)))
    }

    fn create(&self, epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        let (model, kv_lease) = (Arc::clone(&self.model), self.kv_arena.lease(epoch)?);
        let threads = self.threads.lock().clone();
        let (constraints, kv_layout) = (self.constraints.clone(), self.kv_layout.clone());
        let drafts = Drafts::new(self.draft_settings.clone(), self.drafter(&threads));
        let has_states = self.info.kv_spec.groups.iter().any(|group| group.kind == KvKind::State);
        let drafts = drafts.computing_again(has_states);
        let runner = ModelRunner::new(model, kv_lease, threads, constraints, kv_layout);
        let runner = runner.with_adapters(self.adapters.clone()).with_media(self.media.clone());
        Ok(Box::new(runner.with_drafts(drafts)))
    }
}

impl std::fmt::Debug for RunnerFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunnerFactory").field("info", &self.info).finish_non_exhaustive()
    }
}
