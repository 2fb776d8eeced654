//! The OS threads that load adapters, one for each load. A slow adapter delays neither the
//! scheduler nor requests for other adapters. A load that hangs is given up, and its thread is left
//! behind: see [`crate::system::adapters`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::Duration,
};

use super::device_thread::panic_message;
use crate::{
    logic::{
        adapter_slots::AdaptersInUse,
        recovery::in_flight::SideWork,
        request::{failure::Failure, lora::LoraRequest},
        scheduler::AdapterRoom,
    },
    message::SchedulerMessage,
    ports::{AdapterLoader, Settled},
    system::{
        adapters::{LoadId, Start},
        config::DeviceMode,
        context::Context,
    },
};

/// The answer to a request for an adapter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AdapterState {
    /// Requests for it may begin.
    Ready,
    /// It cannot be used.
    Failed(Failure),
    /// It is being loaded, or lacks room.
    Waits,
}

/// Returns the state of an adapter, and begins to load it if it is absent. It does not block.
pub(crate) fn ask_for_adapter(
    context: &Arc<Context>,
    adapter: &Arc<LoraRequest>,
    in_use: &AdaptersInUse,
    room: AdapterRoom,
) -> AdapterState {
    let Some(loader) = context.vault.executors.adapters() else {
        return AdapterState::Failed(Failure::Adapter("adapters are not enabled".to_owned()));
    };
    if let Some(failure) = context.vault.adapter_loads.take_failure(adapter, context.now()) {
        return AdapterState::Failed(failure);
    }
    if room == AdapterRoom::None {
        return AdapterState::Waits;
    }
    match loader.settle(adapter, in_use, room == AdapterRoom::Forced) {
        Settled::Resident => AdapterState::Ready,
        Settled::Full => AdapterState::Waits,
        Settled::Absent => match context.vault.adapter_loads.begin(adapter, context.now()) {
            Start::Load(load) => {
                spawn(context, loader, adapter, load);
                AdapterState::Waits
            }
            Start::Wait => AdapterState::Waits,
            Start::Refused(failure) => AdapterState::Failed(failure),
        },
    }
}

/// Starts the thread of a load.
fn spawn(
    context: &Arc<Context>,
    loader: Arc<dyn AdapterLoader>,
    adapter: &Arc<LoraRequest>,
    load: LoadId,
) {
    let (adapter, weak) = (Arc::clone(adapter), Arc::downgrade(context));
    let front = context.part.engine();
    let work = front.map(|front| front.work_begins(SideWork::Load(Arc::clone(&adapter))));
    let thread = LoadThread { context: weak, loader, adapter, load, work };
    match context.config.device {
        DeviceMode::Thread => {
            let adapter = Arc::clone(&thread.adapter);
            let builder = std::thread::Builder::new().name("playhouse-adapter".to_owned());
            if let Err(error) = builder.spawn(move || thread.run()) {
                if let (Some(work), Some(front)) = (work, front) {
                    front.work_done(work);
                }
                let failure = Failure::Adapter(format!("the system gives no thread: {error}"));
                let loads = &context.vault.adapter_loads;
                loads.end(&adapter, load, Err(failure), context.now());
            }
        }
        DeviceMode::Task { .. } => drop(tokio::spawn(thread.run_in_simulated_time())),
    }
}

/// Returns the time of a load where threads run in simulated time: short, or longer than steps.
fn simulated_time(adapter: &LoraRequest) -> Duration {
    Duration::from_millis(1 + 60 * u64::from(adapter.version))
}

/// A thread that loads one adapter.
struct LoadThread {
    /// Weak, because a thread that hangs must not keep the model in memory.
    context: Weak<Context>,
    loader: Arc<dyn AdapterLoader>,
    adapter: Arc<LoraRequest>,
    load: LoadId,
    /// The number of the work at the front, if this is an engine process.
    work: Option<u64>,
}

impl LoadThread {
    fn run(self) {
        let loaded = catch_unwind(AssertUnwindSafe(|| self.loader.load(&self.adapter)));
        let result = match loaded {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::Adapter(error.to_string())),
            Err(panic) => Err(Failure::Adapter(panic_message(&*panic))),
        };
        let Some(context) = self.context.upgrade() else { return };
        if let (Some(work), Some(front)) = (self.work, context.part.engine()) {
            front.work_done(work);
        }
        context.vault.adapter_loads.end(&self.adapter, self.load, result, context.now());
        context.directory.core.scheduler.cast(SchedulerMessage::AdapterLoaded);
    }

    async fn run_in_simulated_time(self) {
        tokio::time::sleep(simulated_time(&self.adapter)).await;
        self.run();
    }
}
