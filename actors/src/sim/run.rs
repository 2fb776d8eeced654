//! One run: one seed, one runtime, one engine, from its start to the last of its tasks.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    adapter::Loader,
    checker::{Checker, Remains},
    client::{RunContext, visit},
    device::{Device, DevicePlan, Factory},
    faults::FaultPlan,
    grammar::{Compiler, GRAMMAR_TIMEOUT},
    media::Encoder,
    record::{Record, with_panics_recorded},
    vocabulary::Vocabulary,
    workload::{Effect, Order, Workload},
};
use crate::{
    fault::Bug,
    logic::{admission::Tenant, planted::plant, scheduler::PauseState},
    system::{Health, System, SystemConfig, config::DeviceMode},
};

/// Longest time until all clients are served, in simulated time.
const LONGEST_LIFE: Duration = Duration::from_secs(4 * 3_600);
/// Longest time until the engine has cleared all state after its last request.
const LONGEST_DRAIN: Duration = Duration::from_secs(120);
/// Time until the last timer has ended: longer than a step that hangs.
const LAST_TIMER: Duration = Duration::from_secs(2 * 3_600);

/// The options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether all events are kept.
    pub verbose: bool,
    /// Whether the run has no faults.
    pub without_faults: bool,
    /// A planted bug.
    pub bug: Option<Bug>,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The first violation, if there was one.
    pub violation: Option<String>,
    /// Digest of all events.
    pub digest: u64,
    /// Number of events.
    pub num_events: u64,
    /// Number of steps that the device computed.
    pub num_steps: u64,
    /// Number of random and planned faults, without those of the device.
    pub num_faults: u64,
    /// Number of actors that died.
    pub num_deaths: u64,
    /// Number of accepted requests.
    pub num_requests: u64,
    /// Number of requests of a new epoch that continued in the block that they had been filling.
    pub num_adopted: u64,
    /// Longest time without a token while there was no fault.
    pub longest_stall: Duration,
    /// Length of the run, in simulated time.
    pub simulated: Duration,
    /// Events, if they were kept.
    pub log: Vec<String>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    let record = Record::new(options.verbose);
    let mut outcome = Outcome {
        seed,
        violation: None,
        digest: 0,
        num_events: 0,
        num_steps: 0,
        num_faults: 0,
        num_deaths: 0,
        num_requests: 0,
        num_adopted: 0,
        longest_stall: Duration::ZERO,
        simulated: Duration::ZERO,
        log: Vec::new(),
    };
    plant(options.bug);
    with_panics_recorded(&record, || {
        match Builder::new_current_thread().enable_time().start_paused(true).build() {
            Ok(runtime) => runtime.block_on(live(seed, options, &record, &mut outcome)),
            Err(error) => record.violate(|| format!("there is no runtime: {error}")),
        }
    });
    plant(None);
    outcome.violation = record.violation();
    outcome.digest = record.digest();
    outcome.num_events = record.num_events();
    outcome.log = record.take_log();
    outcome
}

async fn live(seed: u64, options: Options, record: &Arc<Record>, outcome: &mut Outcome) {
    let started = Instant::now();
    let workload = Workload::new(seed);
    let plan = match options.without_faults {
        true => FaultPlan::without_faults(seed),
        false => FaultPlan::of(seed, &workload),
    };
    record.explain(|| format!("clients {:#?}", workload.clients));
    record.explain(|| format!("orders {:?}, poison {:?}", workload.orders, workload.poison));
    record.explain(|| format!("{plan:#?}"));
    let device_plan = DevicePlan {
        faults: plan.device.clone(),
        refusals: plan.refusals.clone(),
        memory: plan.memory,
        is_memory_held: plan.is_memory_held,
        poison: workload.poison.clone(),
        max_num_batched_tokens: workload.config.scheduler.max_num_batched_tokens,
        max_num_seqs: workload.config.scheduler.max_num_seqs,
        async_scheduling: workload.config.scheduler.async_scheduling,
    };
    let grammars = Arc::new(Compiler::default());
    let adapters = Arc::new(Loader::new(workload.adapter_slots));
    let (of_device, of_record) = (Arc::clone(&grammars), Arc::clone(record));
    let cache_size = workload.config.scheduler.encoder_cache_size;
    let encoder = Encoder::new(cache_size, Arc::clone(record));
    let info = workload.info.clone();
    let device = Device::new(info, device_plan, of_device, adapters, encoder, of_record);
    let panics = workload.poison.as_ref().is_some_and(|poison| poison.effect == Effect::Panic);
    let has_faults = panics || !plan.is_calm();
    let config = config(&workload);
    let checker = Checker::new(Arc::clone(record), plan.clone(), config.clone(), !has_faults);
    record.explain(|| format!("{config:#?}"));
    let factory = Arc::new(Factory(Arc::clone(&device)));
    let door_seed = workload.door_seed;
    let codec = Arc::new(Vocabulary);
    let system = match System::spawn(config, factory, codec, grammars, door_seed).await {
        Ok(system) => system,
        Err(error) => return record.violate(|| format!("no system: {error}")),
    };
    system.chaos().source().set_observer(checker.clone());
    plan.begin(system.chaos().source());
    let (record, of_context) = (Arc::clone(record), Arc::clone(&checker));
    let context = RunContext { system, workload, record, checker: of_context, has_faults };
    let context = Arc::new(context);
    if timeout(LONGEST_LIFE, serve(&context, &plan)).await.is_err() {
        context.record.violate(|| "clients are still waiting".to_owned());
    }
    outcome.num_faults = context.system.chaos().source().num_faults();
    context.system.chaos().calm();
    close(&context, &checker).await;
    check_remains(&context, checker.remains());
    let remains = checker.remains();
    outcome.num_steps = device.num_executions();
    outcome.num_deaths = remains.num_deaths;
    outcome.num_requests = remains.num_accepted as u64;
    outcome.num_adopted = remains.num_adopted;
    outcome.longest_stall = Duration::from_micros(remains.longest_stall);
    outcome.simulated = started.elapsed();
    end(context, device).await;
}

/// Returns the engine's settings, without those that need threads.
fn config(workload: &Workload) -> SystemConfig {
    SystemConfig {
        // The checker sets the time of a step.
        device: DeviceMode::Task { step_time: Duration::ZERO },
        // A quarter of the default values: fewer ticks until they end.
        first_step_deadline: Duration::from_millis(1_250),
        min_step_deadline: Duration::from_millis(500),
        call_timeout: Duration::from_millis(500),
        egress_timeout: Duration::from_millis(500),
        grammar_timeout: GRAMMAR_TIMEOUT,
        hang_timeout: Duration::from_millis(1_250),
        input_timeout: Duration::from_millis(2_500),
        ..workload.config.clone()
    }
}

/// Runs the clients, the operator's orders and the strikes at set times.
async fn serve(context: &Arc<RunContext>, plan: &FaultPlan) {
    let mut tasks = JoinSet::new();
    for index in 0..context.workload.clients.len() {
        tasks.spawn(visit(Arc::clone(context), index));
    }
    for &(at, order) in &context.workload.orders {
        let context = Arc::clone(context);
        tasks.spawn(async move {
            sleep(at).await;
            obey(&context, order).await;
        });
    }
    for &strike in &plan.armed {
        let context = Arc::clone(context);
        tasks.spawn(async move {
            sleep(strike.at).await;
            // There may be no second actor of this role.
            let _ = context.system.chaos().strike(strike.role, strike.index, strike.how);
        });
    }
    // A panic of a task is in the record.
    while tasks.join_next().await.is_some() {}
}

async fn obey(context: &RunContext, order: Order) {
    context.record.explain(|| format!("{order:?}"));
    match order {
        Order::Pause(pause) => {
            context.checker.set_paused(pause != PauseState::Unpaused);
            context.system.set_pause(pause);
        }
        // Both may find the scheduler dead. And blocks in use cannot be forgotten.
        Order::ResetPrefixCache(reset_running) => {
            context.record.trouble();
            let _ = context.system.reset_prefix_cache(reset_running).await;
        }
        Order::Status => {
            let _ = context.system.status().await;
        }
    }
}

/// Waits until the engine has cleared its state, after the last request.
async fn close(context: &RunContext, checker: &Checker) {
    let is_clear = |remains: Remains| {
        let num_left = remains.num_held_blocks + remains.num_tails + remains.num_held_embeds;
        remains.num_open == 0 && remains.num_remembered == 0 && num_left == 0
    };
    let mut waited = Duration::ZERO;
    while waited < LONGEST_DRAIN {
        let is_ready = context.system.health() == Health::Ready;
        if is_ready && context.system.open_requests() == 0 && is_clear(checker.remains()) {
            break;
        }
        let pause = Duration::from_millis(20).max(waited / 4);
        sleep(pause).await;
        waited += pause;
    }
}

/// Checks that no state of a request is left.
fn check_remains(context: &RunContext, remains: Remains) {
    let record = &context.record;
    if context.system.open_requests() > 0 {
        let open = context.system.open_requests();
        record.violate(|| format!("{open} requests are still in the ledger: {remains:?}"));
    }
    if context.system.open_streams() > 0 {
        record.violate(|| format!("{} streams are left", context.system.open_streams()));
    }
    if remains.num_open > 0 || remains.num_remembered > 0 {
        record.violate(|| format!("requests did not end: {remains:?}"));
    }
    if remains.num_held_blocks > 0 {
        record.violate(|| format!("{} KV blocks are leaked", remains.num_held_blocks));
    }
    if remains.num_tails > 0 {
        record.violate(|| format!("{} tails are left", remains.num_tails));
    }
    if remains.num_held_embeds > 0 {
        record.violate(|| format!("{} embeddings are leaked", remains.num_held_embeds));
    }
    let health = context.system.health();
    if health != Health::Ready {
        record.violate(|| format!("the faults have ended, but the engine is {health:?}"));
    }
    let admission = context.system.chaos().admission();
    let (open, queued) = (admission.num_open(), admission.num_queued());
    let tokens = admission.num_queued_tokens();
    let of_tenants: usize = [0, 1].map(|tenant| admission.num_open_of(Tenant(tenant))).iter().sum();
    if (open, queued, tokens, of_tenants) != (0, 0, 0, 0) {
        record.violate(|| {
            format!("{open} open, {queued} waiting, {tokens} tokens, {of_tenants} of tenants stay reserved")
        });
    }
}

/// Shuts the engine down and checks that no task outlives it.
async fn end(context: Arc<RunContext>, device: Arc<Device>) {
    context.system.shutdown().await;
    let record = Arc::clone(&context.record);
    drop(context);
    sleep(LAST_TIMER).await;
    let num_tasks = Handle::current().metrics().num_alive_tasks();
    if num_tasks > 0 {
        record.violate(|| format!("{num_tasks} tasks outlive the engine"));
    }
    // The engine owns the factory, which owns the device.
    if Arc::strong_count(&device) > 1 {
        record.violate(|| "the engine is still referenced".to_owned());
    }
}
