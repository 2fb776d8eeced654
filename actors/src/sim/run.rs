//! One run: one seed, one runtime, one engine, from its start to the last of its tasks.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    checker::{Checker, Remains},
    client::{House, visit},
    device::{Device, DevicePlan, Factory},
    faults::FaultPlan,
    grammar::{Compiler, GRAMMAR_TIMEOUT},
    record::{Record, with_panics_recorded},
    vocabulary::Vocabulary,
    workload::{Effect, Order, Workload},
};
use crate::{
    fault::Bug,
    logic::{admission::Tenant, planted::plant, scheduler::PauseState},
    system::{Health, System, SystemConfig, config::DeviceMode},
};

/// All clients are served by then, in simulated time.
const LONGEST_LIFE: Duration = Duration::from_secs(4 * 3_600);
/// What is left when nobody asks anything any more is cleared by then.
const LONGEST_DRAIN: Duration = Duration::from_secs(120);
/// The last timer has run out by then: longer than a step that hangs.
const LAST_TIMER: Duration = Duration::from_secs(2 * 3_600);

/// How a seed is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Keep all events for reading.
    pub verbose: bool,
    /// Leave out the faults.
    pub without_faults: bool,
    /// A mistake that the code is to make.
    pub bug: Option<Bug>,
}

/// What became of a seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was wrong first, if anything was.
    pub violation: Option<String>,
    /// Names the sequence of all events.
    pub digest: u64,
    /// Events.
    pub num_events: u64,
    /// Steps that the device computed.
    pub num_steps: u64,
    /// Faults that happened by chance or plan, the device's aside.
    pub num_faults: u64,
    /// Actors that died.
    pub num_deaths: u64,
    /// Requests accepted.
    pub num_requests: u64,
    /// Requests of a new epoch that went on in the block that they had been filling.
    pub num_adopted: u64,
    /// The longest time without a token while nothing went wrong.
    pub longest_stall: Duration,
    /// How long it took the engine, by its clock.
    pub simulated: Duration,
    /// Events to read, if they were kept.
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
        false => FaultPlan::new(seed, workload.poison.is_some(), workload.is_constrained()),
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
    let (of_device, of_record) = (Arc::clone(&grammars), Arc::clone(record));
    let device = Device::new(workload.info.clone(), device_plan, of_device, of_record);
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
    let (record, of_house) = (Arc::clone(record), Arc::clone(&checker));
    let house = House { system, workload, record, checker: of_house, has_faults };
    let house = Arc::new(house);
    if timeout(LONGEST_LIFE, serve(&house, &plan)).await.is_err() {
        house.record.violate(|| "clients are still waiting".to_owned());
    }
    outcome.num_faults = house.system.chaos().source().num_faults();
    house.system.chaos().calm();
    close(&house, &checker).await;
    check_remains(&house, checker.remains());
    let remains = checker.remains();
    outcome.num_steps = device.num_executions();
    outcome.num_deaths = remains.num_deaths;
    outcome.num_requests = remains.num_accepted as u64;
    outcome.num_adopted = remains.num_adopted;
    outcome.longest_stall = Duration::from_micros(remains.longest_stall);
    outcome.simulated = started.elapsed();
    end(house, device).await;
}

/// The engine's settings, with nothing that needs a thread.
fn config(workload: &Workload) -> SystemConfig {
    SystemConfig {
        // The checker knows what a step takes.
        device: DeviceMode::Task { step_time: Duration::ZERO },
        // A quarter of what they are by default: fewer ticks until they run out.
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

/// Clients, operator and fate do what they do.
async fn serve(house: &Arc<House>, plan: &FaultPlan) {
    let mut guests = JoinSet::new();
    for index in 0..house.workload.clients.len() {
        guests.spawn(visit(Arc::clone(house), index));
    }
    for &(at, order) in &house.workload.orders {
        let house = Arc::clone(house);
        guests.spawn(async move {
            sleep(at).await;
            obey(&house, order).await;
        });
    }
    for &strike in &plan.armed {
        let house = Arc::clone(house);
        guests.spawn(async move {
            sleep(strike.at).await;
            // There may be no second one of its kind.
            let _ = house.system.chaos().strike(strike.role, strike.index, strike.how);
        });
    }
    // Who panics has told the record.
    while guests.join_next().await.is_some() {}
}

async fn obey(house: &House, order: Order) {
    house.record.explain(|| format!("{order:?}"));
    match order {
        Order::Pause(pause) => {
            house.checker.set_paused(pause != PauseState::Unpaused);
            house.system.set_pause(pause);
        }
        // Either may find the scheduler dead; and blocks in use cannot be forgotten.
        Order::ResetPrefixCache(reset_running) => {
            house.record.trouble();
            let _ = house.system.reset_prefix_cache(reset_running).await;
        }
        Order::Status => {
            let _ = house.system.status().await;
        }
    }
}

/// Nobody asks anything any more: the engine clears what is left.
async fn close(house: &House, checker: &Checker) {
    let is_clear = |remains: Remains| {
        let num_left = remains.num_held_blocks + remains.num_tails;
        remains.num_open == 0 && remains.num_remembered == 0 && num_left == 0
    };
    let mut waited = Duration::ZERO;
    while waited < LONGEST_DRAIN {
        let is_ready = house.system.health() == Health::Ready;
        if is_ready && house.system.open_requests() == 0 && is_clear(checker.remains()) {
            break;
        }
        let pause = Duration::from_millis(20).max(waited / 4);
        sleep(pause).await;
        waited += pause;
    }
}

/// Nothing may be left of requests.
fn check_remains(house: &House, remains: Remains) {
    let record = &house.record;
    if house.system.open_requests() > 0 {
        let open = house.system.open_requests();
        record.violate(|| format!("{open} requests are still in the ledger: {remains:?}"));
    }
    if house.system.open_streams() > 0 {
        record.violate(|| format!("{} streams are left", house.system.open_streams()));
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
    let health = house.system.health();
    if health != Health::Ready {
        record.violate(|| format!("nothing goes wrong any more, but it is {health:?}"));
    }
    let admission = house.system.chaos().admission();
    let (open, queued) = (admission.num_open(), admission.num_queued());
    let tokens = admission.num_queued_tokens();
    let of_tenants: usize = [0, 1].map(|tenant| admission.num_open_of(Tenant(tenant))).iter().sum();
    if (open, queued, tokens, of_tenants) != (0, 0, 0, 0) {
        record.violate(|| {
            format!("{open} open, {queued} waiting, {tokens} tokens, {of_tenants} of tenants stay reserved")
        });
    }
}

/// The engine goes, and all its tasks with it.
async fn end(house: Arc<House>, device: Arc<Device>) {
    house.system.shutdown().await;
    let record = Arc::clone(&house.record);
    drop(house);
    sleep(LAST_TIMER).await;
    let num_tasks = Handle::current().metrics().num_alive_tasks();
    if num_tasks > 0 {
        record.violate(|| format!("{num_tasks} tasks outlive the engine"));
    }
    // Its factory belongs to the engine.
    if Arc::strong_count(&device) > 1 {
        record.violate(|| "somebody still holds the engine".to_owned());
    }
}
