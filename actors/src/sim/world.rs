//! The system of one run: all actors in one process, or a front with engine processes.

use std::{sync::Arc, time::Duration};

use super::{
    checker::Checker,
    device::{Device, DeviceFault, DevicePlan, EngineDevice, Factory, Parts},
    faults::{FaultPlan, ProcessStrike},
    processes::{Engine, SimLauncher},
    record::Record,
    vocabulary::Vocabulary,
    workload::Workload,
};
use crate::{
    link::{EngineLauncher, Loading, frames::Fault},
    logic::request::ids::EngineIndex,
    system::{EngineStart, System, SystemConfig},
};

/// The parts of a run's system that faults and checks reach.
#[derive(Debug)]
pub struct World {
    /// The device of each engine.
    pub devices: Vec<Arc<EngineDevice>>,
    /// The launchers of the engines, if they have processes of their own.
    pub launchers: Vec<Arc<SimLauncher>>,
}

impl World {
    /// Starts the system of a run.
    ///
    /// # Errors
    /// The reason why there is none.
    pub async fn start(
        config: &SystemConfig,
        workload: &Arc<Workload>,
        plan: &FaultPlan,
        checker: &Arc<Checker>,
        record: &Arc<Record>,
    ) -> Result<(System, Self), String> {
        let count = workload.engines.map_or(1, |engines| engines.count);
        let device = |engine| {
            let device_plan = device_plan(workload, plan, engine);
            EngineDevice::new(workload.info.clone(), device_plan, Arc::clone(record))
        };
        let devices: Vec<_> = (0..count).map(device).collect();
        let launcher = |(engine, device): (usize, &Arc<EngineDevice>)| {
            Some(SimLauncher::new(Engine {
                engine,
                config: SystemConfig { journal: None, ..config.clone() },
                workload: Arc::clone(workload),
                engines: workload.engines?,
                plan: plan.clone(),
                device: Arc::clone(device),
                checker: Arc::clone(checker),
                record: Arc::clone(record),
            }))
        };
        let launchers: Vec<_> = devices.iter().enumerate().filter_map(launcher).collect();
        let world = Self { devices, launchers };
        let (config, seed) = (config.clone(), workload.door_seed);
        let codec = Arc::new(Vocabulary);
        let mut starts = world.loaded(config.hang_timeout).await?.into_iter();
        // The system's time begins now.
        record.begin_life();
        let system = match starts.next() {
            Some(first) => {
                let info = workload.info.clone();
                System::spawn_front(config, info, codec, first, starts.collect(), seed).await
            }
            None => {
                let parts = Parts::new(workload, record);
                let grammars = Arc::clone(&parts.grammars);
                let executors = Arc::new(Factory::new(Device::new(&world.devices[0]), parts));
                System::spawn(config, executors, codec, grammars, seed).await
            }
        };
        Ok((system.map_err(|error| error.to_string())?, world))
    }

    /// Starts the first process of each engine.
    async fn loaded(&self, silence_max: Duration) -> Result<Vec<EngineStart>, String> {
        let mut starts = Vec::new();
        for launcher in &self.launchers {
            let launcher: Arc<dyn EngineLauncher> = Arc::<SimLauncher>::clone(launcher);
            let loading = Loading::begin(&*launcher, silence_max);
            let loading = loading.map_err(|error| error.to_string())?;
            let loaded = loading.loaded(|_| ()).await.map_err(|error| error.to_string())?;
            starts.push((launcher, loaded));
        }
        Ok(starts)
    }

    /// Makes a fault of a process.
    pub fn strike(&self, system: &System, strike: ProcessStrike) {
        let ProcessStrike { engine, fault, is_at_newest, .. } = strike;
        let launcher = self.launchers.get(engine);
        if launcher.is_some_and(|launcher| launcher.strike(fault, is_at_newest)) {
            system.chaos().engine_process_of(EngineIndex(engine), Fault::Garbage);
        }
    }

    /// Ends all faults.
    pub fn calm(&self, system: &System) {
        self.devices.iter().for_each(|device| device.end_faults());
        self.launchers.iter().for_each(|launcher| launcher.calm());
        system.chaos().calm();
    }

    /// Returns the number of faults so far, without those of devices.
    #[must_use]
    pub fn num_faults(&self, system: &System) -> u64 {
        let of_processes: u64 = self.launchers.iter().map(|launcher| launcher.num_faults()).sum();
        system.chaos().source().num_faults() + of_processes
    }

    /// Returns the number of steps that all devices computed.
    #[must_use]
    pub fn num_executions(&self) -> u64 {
        self.devices.iter().map(|device| device.num_executions()).sum()
    }

    /// Returns the number of processes that were started.
    #[must_use]
    pub fn num_processes(&self) -> u64 {
        self.launchers.iter().map(|launcher| u64::from(launcher.num_started())).sum()
    }
}

/// Returns the limits and faults of an engine's device. The first engine has most of the faults: a
/// request that meets them in several engines would count as their cause.
fn device_plan(workload: &Workload, plan: &FaultPlan, engine: usize) -> DevicePlan {
    let scheduler = &workload.config.scheduler;
    let is_first = engine == 0;
    let mut faults = plan.device.clone();
    faults.retain(|_, _| is_first);
    if let Some((_, execution)) = plan.processes.death_in_step.filter(|(at, _)| *at == engine) {
        faults.insert(execution, DeviceFault::Death);
    }
    if let Some((_, first, count)) = plan.processes.kills_in_steps.filter(|kills| kills.0 == engine)
    {
        faults.extend((first..first + count).map(|execution| (execution, DeviceFault::Kill)));
    }
    let mut last_stores = plan.processes.last_stores.clone();
    last_stores.retain(|_| is_first);
    DevicePlan {
        faults,
        refusals: plan.refusals.iter().copied().filter(|_| is_first).collect(),
        memory: plan.memory,
        is_memory_held: plan.is_memory_held,
        poison: workload.poison.clone(),
        max_num_batched_tokens: scheduler.max_num_batched_tokens,
        max_num_seqs: scheduler.max_num_seqs,
        async_scheduling: scheduler.async_scheduling,
        keeps_kv_cache: workload.engines.is_some_and(|engines| engines.keeps_kv_cache),
        last_stores,
    }
}
