//! One run: one seed, one runtime, one engine, from its start to the last of its tasks.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinSet,
    time::{sleep, timeout},
};

pub use super::outcome::{Options, Outcome};
use super::{
    checker::{Checker, Remains},
    client::{RunContext, visit},
    faults::{FaultPlan, RecoveryStrike},
    grammar::GRAMMAR_TIMEOUT,
    lives,
    record::{Record, with_panics_recorded},
    workload::{Effect, Order, Workload},
    world::World,
};
use crate::{
    logic::{admission::Tenant, planted::plant, scheduler::PauseState},
    system::{Health, Journal, SystemConfig, config::DeviceMode},
};

/// Longest time until all clients are served, in simulated time.
const LONGEST_LIFE: Duration = Duration::from_secs(4 * 3_600);
/// Longest time until the engine has cleared all state after its last request.
const LONGEST_DRAIN: Duration = Duration::from_secs(120);
/// Time between two looks whether there is a bound for the end of all requests.
const LIVENESS_PAUSE: Duration = Duration::from_secs(1);
/// Time until the last timer has ended: longer than a step that hangs.
const LAST_TIMER: Duration = Duration::from_secs(2 * 3_600);

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    let record = Record::new(options.verbose);
    let mut outcome = Outcome::of(seed);
    plant(options.bug);
    with_panics_recorded(&record, || {
        let workload = Arc::new(match options.is_first_world {
            true => Workload::in_one_process(seed),
            false => Workload::new(seed),
        });
        let plan = match options.without_faults {
            true => FaultPlan::without_faults(seed),
            false if options.is_first_world => FaultPlan::of_actors(seed, &workload),
            false => FaultPlan::of(seed, &workload),
        };
        match workload.lives.clone() {
            Some(lives) => {
                lives::live(seed, options, &record, (workload, plan), &lives, &mut outcome);
            }
            None => with_runtime(&record, live(options, &record, (workload, plan), &mut outcome)),
        }
    });
    plant(None);
    outcome.violation = record.violation();
    outcome.digest = record.digest();
    outcome.num_events = record.num_events();
    outcome.log = record.take_log();
    outcome
}

/// Runs a life of the system in a runtime of its own, in simulated time. All tasks end with it.
pub(super) fn with_runtime(record: &Record, life: impl Future<Output = ()>) {
    match Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(runtime) => runtime.block_on(async {
            record.begin_life();
            life.await;
            record.end_life();
        }),
        Err(error) => record.violate(|| format!("there is no runtime: {error}")),
    }
}

async fn live(
    options: Options,
    record: &Arc<Record>,
    (workload, plan): (Arc<Workload>, FaultPlan),
    outcome: &mut Outcome,
) {
    let parts = (workload, plan.clone());
    let Some(context) = begin(options, record, parts, None).await else { return };
    let mut clients = JoinSet::new();
    for index in 0..context.workload.clients.len() {
        clients.spawn(visit(Arc::clone(&context), index));
    }
    serve(&context, &plan, clients).await;
    finish(context, outcome).await;
}

/// Starts the system of a run, with its faults.
pub(super) async fn begin(
    options: Options,
    record: &Arc<Record>,
    (workload, plan): (Arc<Workload>, FaultPlan),
    journal: Option<Arc<Journal>>,
) -> Option<Arc<RunContext>> {
    record.explain(|| format!("clients {:#?}", workload.clients));
    record.explain(|| format!("orders {:?}, poison {:?}", workload.orders, workload.poison));
    record.explain(|| format!("{:?}, {:?}", workload.engines, workload.lives));
    record.explain(|| format!("{plan:#?}"));
    let panics = workload.poison.as_ref().is_some_and(|poison| poison.effect == Effect::Panic);
    let dies = workload.lives.is_some() && !options.without_faults;
    let has_faults = panics || dies || !plan.is_calm();
    let config = SystemConfig { journal, ..config(&workload) };
    let num_engines = workload.engines.map_or(0, |engines| engines.count);
    let of_checker = (Arc::clone(record), plan.clone(), config.clone());
    let (of_record, of_plan, of_config) = of_checker;
    let checker = Checker::new(of_record, of_plan, of_config, !has_faults, num_engines);
    record.explain(|| format!("{config:#?}"));
    let (system, world) = match World::start(&config, &workload, &plan, &checker, record).await {
        Ok(started) => started,
        Err(error) => {
            record.violate(|| format!("no system: {error}"));
            return None;
        }
    };
    system.chaos().source().set_observer(Arc::<Checker>::clone(&checker));
    plan.begin(system.chaos().source());
    let record = Arc::clone(record);
    Some(Arc::new(RunContext { system, world, workload, record, checker, has_faults }))
}

/// Ends the faults, waits until the engine has cleared its state, and ends it.
pub(super) async fn finish(context: Arc<RunContext>, outcome: &mut Outcome) {
    outcome.num_faults += context.world.num_faults(&context.system);
    context.world.calm(&context.system);
    close(&context, &context.checker).await;
    let remains = context.checker.remains();
    check_remains(&context, remains);
    outcome.num_steps += context.world.num_executions();
    outcome.num_processes += context.world.num_processes();
    outcome.num_deaths += remains.num_deaths;
    outcome.num_requests += remains.num_accepted as u64;
    outcome.num_adopted += remains.num_adopted;
    let stall = Duration::from_micros(remains.longest_stall);
    outcome.longest_stall = outcome.longest_stall.max(stall);
    outcome.simulated = Duration::from_micros(context.record.now());
    end(context).await;
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
pub(super) async fn serve(context: &Arc<RunContext>, plan: &FaultPlan, clients: JoinSet<()>) {
    let served = timeout(LONGEST_LIFE, serve_all(context, plan, clients));
    tokio::select! {
        biased;
        served = served => if served.is_err() {
            context.record.violate(|| "clients are still waiting".to_owned());
        },
        // The rest of the run would show nothing.
        () = violated(&context.record) => {}
    }
}

/// Waits until something is wrong.
async fn violated(record: &Record) {
    while record.violation().is_none() {
        sleep(10 * LIVENESS_PAUSE).await;
    }
}

async fn serve_all(context: &Arc<RunContext>, plan: &FaultPlan, mut tasks: JoinSet<()>) {
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
    for &strike in &plan.processes.strikes {
        let context = Arc::clone(context);
        tasks.spawn(async move {
            sleep(strike.at).await;
            context.world.strike(&context.system, strike);
        });
    }
    let mut others = JoinSet::new();
    others.spawn(strike_in_recovery(Arc::clone(context), plan.in_recovery.clone()));
    others.spawn(live_on(Arc::clone(context), plan.end.filter(|_| !plan.is_calm())));
    // A panic of a task is in the record.
    while tasks.join_next().await.is_some() {}
    others.shutdown().await;
}

/// Strikes when the system recovers.
async fn strike_in_recovery(context: Arc<RunContext>, mut planned: Vec<RecoveryStrike>) {
    // One task: tokio wakes several that wait for one event in any order.
    planned.sort_by_key(|planned| planned.recovery);
    let mut recoveries = context.checker.recoveries();
    for RecoveryStrike { recovery, delay, strike } in planned {
        if recoveries.wait_for(|count| *count >= recovery).await.is_err() {
            return;
        }
        sleep(delay).await;
        // The actor may have no successor yet.
        let _ = context.system.chaos().strike(strike.role, strike.index, strike.how);
    }
}

/// Ends the faults at their end, and then checks that all requests end in time.
async fn live_on(context: Arc<RunContext>, end: Option<Duration>) {
    if let Some(end) = end {
        sleep(end).await;
        context.world.calm(&context.system);
    } else if context.has_faults {
        return;
    }
    context.checker.faults_ended();
    loop {
        match context.checker.bound() {
            Some(bound) => {
                let left = bound.saturating_sub(context.record.now());
                sleep(Duration::from_micros(left) + LIVENESS_PAUSE).await;
            }
            None => sleep(LIVENESS_PAUSE).await,
        }
        context.checker.check_bound();
    }
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
        // The other engine may be drained already.
        Order::Drain(engine, moves) => drop(context.system.drain_engine(engine, moves)),
        Order::Undrain(engine) => drop(context.system.undrain_engine(engine)),
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
async fn end(context: Arc<RunContext>) {
    context.system.shutdown().await;
    let record = Arc::clone(&context.record);
    let (devices, launchers) = (context.world.devices.clone(), context.world.launchers.clone());
    drop(context);
    sleep(LAST_TIMER).await;
    let num_tasks = Handle::current().metrics().num_alive_tasks();
    if num_tasks > 0 {
        record.violate(|| format!("{num_tasks} tasks outlive the engine"));
    }
    // The engine owns the factories, which own the devices. The memory of a dead process does not
    // matter: it ends with the process.
    let is_device_used = devices.iter().any(|device| Arc::strong_count(device) > 1);
    let is_launcher_used = launchers.iter().any(|launcher| Arc::strong_count(launcher) > 1);
    if is_launcher_used || (is_device_used && launchers.is_empty()) {
        record.violate(|| "the engine is still referenced".to_owned());
    }
}
