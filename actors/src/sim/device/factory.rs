//! The device as an executor factory of one process.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;

use super::{Device, DeviceFault, EngineDevice, Executor, State};
use crate::{
    fault::{Bug, planted},
    logic::request::ids::{Epoch, Step},
    ports::{
        AdapterLoader, EncoderFactory, ExecuteError, ExecutorFactory, KeptMemory, KvContent,
        ModelExecutor, ModelInfo,
    },
    sim::{
        adapter::Loader,
        grammar::Compiler,
        media::{Encoder, Encoders},
        record::Record,
        workload::Workload,
    },
};

/// The parts of one process that its executors use.
#[derive(Clone)]
pub struct Parts {
    /// The compiled grammars.
    pub grammars: Arc<Compiler>,
    /// The adapters in memory.
    pub adapters: Arc<Loader>,
    /// The encoded images.
    pub encoder: Arc<Encoder>,
    /// Ends the process as a fault of its code does, or with `true` as a signal from outside does.
    /// `None`: all actors run in one process, which lives on.
    pub death: Option<Arc<dyn Fn(bool) + Send + Sync>>,
    /// Whether a poisoned prompt ends the process. Otherwise its step panics.
    pub is_poison_deadly: bool,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Parts {
    /// Returns the parts of a process that has done nothing yet.
    #[must_use]
    pub fn new(workload: &Workload, record: &Arc<Record>) -> Self {
        let cache_size = workload.config.scheduler.encoder_cache_size;
        Self {
            grammars: Arc::default(),
            adapters: Arc::new(Loader::new(workload.adapter_slots)),
            encoder: Encoder::new(cache_size, Arc::clone(record)),
            death: None,
            is_poison_deadly: false,
        }
    }

    /// Ends the process, if the fault does that.
    pub(super) fn end_process(&self, fault: DeviceFault) {
        if let Some(death) = &self.death
            && matches!(fault, DeviceFault::Death | DeviceFault::Kill)
        {
            death(fault == DeviceFault::Kill);
        }
    }

    pub(super) fn effect_of_poison(&self) -> DeviceFault {
        match self.is_poison_deadly {
            true => DeviceFault::Death,
            false => DeviceFault::Panic,
        }
    }
}

/// [`Device`] as an executor factory of one process.
#[derive(Debug)]
pub struct Factory {
    device: Arc<Device>,
    parts: Parts,
}

impl Factory {
    /// Returns the factory of a process.
    #[must_use]
    pub fn new(device: Arc<Device>, parts: Parts) -> Self {
        Self { device, parts }
    }
}

impl Device {
    /// Returns a process's device of an engine.
    #[must_use]
    pub fn new(engine: &Arc<EngineDevice>) -> Arc<Self> {
        let state = State {
            memory: engine.empty_memory(),
            generation: 0,
            newest_epoch: Epoch::default(),
            is_lost: false,
            last: (Epoch::default(), Step::default()),
            is_kept: false,
            is_dead: false,
        };
        Arc::new(Self { engine: Arc::clone(engine), state: Mutex::new(state) })
    }
}

impl ExecutorFactory for Factory {
    fn info(&self) -> &ModelInfo {
        &self.device.engine.info
    }

    fn reclaim(&self, epoch: Epoch) -> Result<KvContent, ExecuteError> {
        let mut state = self.device.state.lock();
        state.newest_epoch = state.newest_epoch.max(epoch.next());
        state.generation += 1;
        if !self.device.engine.plan.is_memory_held {
            return Ok(KvContent::Kept);
        }
        state.is_lost = true;
        // The new cache ends with the process.
        self.device.leave_kept(&mut state);
        Ok(KvContent::Lost)
    }

    fn keep_kv_cache(&self, num_words: usize) -> Option<Arc<dyn KeptMemory>> {
        let is_kept = self.device.engine.plan.keeps_kv_cache && self.parts.death.is_some();
        is_kept.then(|| self.device.keep(num_words, self.parts.clone()))
    }

    fn forgotten(&self, last: Epoch) {
        let mut state = self.device.state.lock();
        if std::mem::take(&mut state.is_lost) {
            state.newest_epoch = state.newest_epoch.max(last.next());
        }
    }

    fn adapters(&self) -> Option<Arc<dyn AdapterLoader>> {
        let adapters = Arc::clone(&self.parts.adapters);
        Some(adapters)
    }

    fn encoder(&self) -> Option<Arc<dyn EncoderFactory>> {
        Some(Arc::new(Encoders(Arc::clone(&self.parts.encoder))))
    }

    fn create(&self, epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        let mut state = self.device.state.lock();
        let mut engine = self.device.engine.lock();
        if state.is_dead {
            return Err(ExecuteError::Device("the process is dead".to_owned()));
        }
        if state.newest_epoch > epoch && !planted(Bug::KeepStaleStep) {
            return Err(ExecuteError::Device(format!("{epoch:?} is past")));
        }
        if state.is_lost {
            return Err(ExecuteError::Device("a loss was not confirmed".to_owned()));
        }
        engine.num_attempts += 1;
        if self.device.engine.plan.refusals.contains(&engine.num_attempts)
            && !engine.are_faults_over
        {
            self.device.engine.record.trouble();
            return Err(ExecuteError::Device("planned: there is no executor".to_owned()));
        }
        state.newest_epoch = epoch;
        let (device, generation) = (Arc::clone(&self.device), state.generation);
        let (parts, rows, num_draws) = (self.parts.clone(), BTreeMap::new(), 0);
        Ok(Box::new(Executor { device, parts, epoch, generation, rows, num_draws }))
    }
}
