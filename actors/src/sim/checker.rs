//! Invariants, checked after each step against what the observer sees.

mod bounds;
mod cores;
mod wakeups;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use self::cores::Core;
use super::{
    faults::FaultPlan,
    grammar,
    liveness::{Liveness, longest_time},
    record::Record,
};
use crate::{
    fault::{Delivery, Observed, Observer},
    logic::{
        admission::Tenant,
        ledger::{GroundState, LedgerEvent},
        request::{
            EngineRequest,
            ids::{EngineIndex, Epoch, Micros, RequestId},
            outputs::Commit,
            structured_output::StructuredOutput,
        },
        scheduler::output::SchedulerOutput,
    },
    message::Edge,
    system::SystemConfig,
};

/// The longest time without a token, or without its delivery, once faults have ended. It covers
/// noticing a hang, starting again, and computing the lost tokens.
const LONGEST_STALL: Duration = Duration::from_secs(3);
/// Longest time granted to a step: ten times its prediction, which late results of earlier steps
/// make too long.
const LONGEST_GRANT: Duration = Duration::from_secs(20);
/// Longest time from the fault of a process until its successor serves: to notice its silence, to
/// wait for its end twice, and to load the model.
const LONGEST_FAILOVER: Duration = Duration::from_secs(8);

/// A copy of the ledger, kept by simpler rules, and the latest state of the KV cache manager.
#[derive(Debug)]
pub struct Checker {
    record: Arc<Record>,
    plan: FaultPlan,
    config: SystemConfig,
    is_calm: bool,
    stall_limit: Micros,
    /// Number of engine processes at a time. 0: all actors run in one process.
    num_engines: usize,
    /// Number of epochs seen.
    recoveries: watch::Sender<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last epoch of any engine, and the current one of each engine.
    epoch: Epoch,
    epochs: BTreeMap<EngineIndex, Epoch>,
    requests: BTreeMap<RequestId, Shadow>,
    /// The cores, by engine. There is one if all actors run in one process.
    cores: BTreeMap<usize, Core>,
    /// Requests of a new epoch that continued in their tail.
    num_adopted: u64,
    num_epochs: u64,
    num_deaths: u64,
    /// For each step that the device has and has not reported: whether it computes tokens.
    given: VecDeque<bool>,
    /// Number of steps on their way to the device or back.
    num_computing: usize,
    /// Number of those whose results the worker has and the scheduler does not.
    num_computed: usize,
    /// Time since which the scheduler has a reason to plan a step.
    due_since: Option<Micros>,
    /// Number of requests that have not ended.
    num_live: usize,
    /// Time at which one of them last made progress or was accepted.
    moved_at: Micros,
    /// Whether the operator pauses requests.
    is_paused: bool,
    longest_stall: Micros,
    liveness: Liveness,
    /// The fold of the events seen.
    replayed: Option<GroundState>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Shadow {
    num_tokens: usize,
    /// The engine that has it.
    engine: EngineIndex,
    /// Longest time that it takes without faults.
    longest_time: Micros,
    tenant: Option<Tenant>,
    /// Time since which its client lacks some output.
    news_since: Option<Micros>,
    has_ended: bool,
    is_forgotten: bool,
}

/// The state after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remains {
    /// Number of accepted requests.
    pub num_accepted: usize,
    /// Number of those that have not ended.
    pub num_open: usize,
    /// Number of those that the ledger still holds.
    pub num_remembered: usize,
    /// Blocks in tables when the KV cache manager was last seen.
    pub num_held_blocks: usize,
    /// Tails at the same time.
    pub num_tails: usize,
    /// Embeddings in use when the encoder cache manager was last seen.
    pub num_held_embeds: usize,
    /// Number of tails that a new epoch used.
    pub num_adopted: u64,
    /// Number of epochs begun.
    pub num_epochs: u64,
    /// Number of actors that died.
    pub num_deaths: u64,
    /// Longest time without a token while there was no fault, in microseconds.
    pub longest_stall: Micros,
}

impl Checker {
    /// Returns a checker of a run with the faults of `plan` that reports to `record`. `is_calm`
    /// says that there is no fault, in the plan or elsewhere. `num_engines` is the number of engine
    /// processes, or 0.
    #[must_use]
    pub fn new(
        record: Arc<Record>,
        plan: FaultPlan,
        config: SystemConfig,
        is_calm: bool,
        num_engines: usize,
    ) -> Arc<Self> {
        let mut limit = LONGEST_STALL;
        if plan.hangs_supervisors() {
            limit += 2 * config.hang_timeout + config.input_timeout;
        }
        if !plan.hangs.is_empty() && plan.hides_results() {
            limit += LONGEST_GRANT;
        }
        if num_engines > 0 {
            limit += LONGEST_FAILOVER;
        }
        let (stall_limit, state) = (limit.as_micros() as u64, Mutex::default());
        let (recoveries, _) = watch::channel(0);
        Arc::new(Self {
            record,
            plan,
            config,
            is_calm,
            stall_limit,
            num_engines,
            recoveries,
            state,
        })
    }

    /// Returns the number of epochs seen, which changes as they begin.
    pub fn recoveries(&self) -> watch::Receiver<u64> {
        self.recoveries.subscribe()
    }

    /// Records that a client that reads at once has `num_tokens`, or the end.
    pub fn delivered(&self, request: RequestId, num_tokens: usize, is_end: bool) {
        let mut state = self.state.lock();
        let State { requests, longest_stall, .. } = &mut *state;
        let Some(shadow) = requests.get_mut(&request) else { return };
        let Some(since) = shadow.news_since else { return };
        let now = self.record.now();
        let has_all = is_end || (num_tokens >= shadow.num_tokens && !shadow.has_ended);
        shadow.news_since = (!has_all).then_some(now);
        let stall = now.saturating_sub(since.max(self.record.troubled_until()));
        *longest_stall = (*longest_stall).max(stall);
        if stall > self.stall_limit {
            self.record.violate(|| format!("request {request} got its news {stall} µs late"));
        }
    }

    /// Records that a request made progress, was accepted or ended, and checks that this was not
    /// too late.
    fn moved(&self, state: &mut State) {
        let now = self.record.now();
        if state.num_live > 0 && !state.is_paused {
            let since = state.moved_at.max(self.record.troubled_until());
            let stall = now.saturating_sub(since);
            state.longest_stall = state.longest_stall.max(stall);
            if stall > self.stall_limit {
                self.record.violate(|| format!("no request got anything for {stall} µs"));
            }
        }
        state.moved_at = now;
    }

    fn check_acceptance(&self, accepted: &EngineRequest, tenant: Option<Tenant>) {
        let request = accepted.id;
        let interval = self.config.scheduler.prefill_schedule_interval;
        let longest_time = longest_time(accepted, interval);
        let mut state = self.state.lock();
        state.liveness.accepted(self.record.now(), longest_time);
        if state.num_live == 0 {
            state.moved_at = self.record.now();
        }
        state.num_live += 1;
        if state
            .requests
            .insert(request, Shadow { tenant, longest_time, ..Shadow::default() })
            .is_some()
        {
            self.record.violate(|| format!("request {request} is accepted twice"));
        }
        let is_of_tenant = |shadow: &&Shadow| shadow.tenant == tenant && !shadow.has_ended;
        if let (Some(tenant), Some(most)) = (tenant, self.config.admission.quota.max_open_requests)
        {
            let count = state.requests.values().filter(is_of_tenant).count();
            if count > most {
                self.record.violate(|| format!("{tenant:?} has {count} open requests of {most}"));
            }
        }
    }

    /// Checks that no request begins after its deadline.
    fn check_deadlines(&self, output: &SchedulerOutput) {
        // The scheduler reads its clock before it asks for blocks.
        let slack = match self.is_calm {
            true => Duration::ZERO,
            false => 2 * (self.config.hang_timeout + self.config.call_timeout),
        };
        for new in output.scheduled_new.iter().filter(|new| new.output_token_ids.is_empty()) {
            // The record's time begins with the first event, which is later than the system's.
            let deadline = new.request.deadline.map(|deadline| deadline + slack.as_micros() as u64);
            if let Some(deadline) = deadline.filter(|&deadline| deadline < self.record.now()) {
                let request = new.request.id;
                self.record.violate(|| {
                    format!("request {request} begins after its deadline at {deadline} µs")
                });
            }
        }
    }

    /// Returns the state after the run.
    pub fn remains(&self) -> Remains {
        let state = self.state.lock();
        let count =
            |is_it: fn(&Shadow) -> bool| state.requests.values().filter(|s| is_it(s)).count();
        let of_cores = |count: fn(&Core) -> usize| state.cores.values().map(count).sum();
        Remains {
            num_accepted: state.requests.len(),
            num_open: count(|shadow| !shadow.has_ended),
            num_remembered: count(|shadow| !shadow.is_forgotten),
            num_held_blocks: of_cores(|core| core.num_held),
            num_tails: of_cores(|core| core.num_tails),
            num_held_embeds: of_cores(|core| core.num_held_embeds),
            num_adopted: state.num_adopted,
            num_epochs: state.num_epochs,
            num_deaths: state.num_deaths,
            longest_stall: state.longest_stall,
        }
    }

    /// Folds the events again, and compares the result with the ledger whenever an epoch begins or
    /// a request is forgotten.
    fn replay(&self, event: &LedgerEvent, ledger: &GroundState) {
        let mut state = self.state.lock();
        if self.num_engines > 0 && state.replayed.is_none() {
            // Engines may have begun epochs before the observer was set.
            state.replayed = Some(ledger.clone());
            return;
        }
        let replayed = state.replayed.get_or_insert_with(|| {
            // The first epoch began before the observer was set.
            let mut replayed = GroundState::new(self.config.ledger());
            let (engine, epoch) = (EngineIndex::default(), ledger.epoch());
            let why = "the system starts".into();
            replayed.apply(&LedgerEvent::EpochBegan { engine, epoch, why });
            replayed
        });
        replayed.apply(event);
        let is_due =
            matches!(event, LedgerEvent::EpochBegan { .. } | LedgerEvent::Forgotten { .. });
        if is_due && replayed != ledger {
            self.record
                .violate(|| format!("the ledger is not the fold of its events at {event:?}"));
        }
    }

    fn observe_ledger(&self, event: &LedgerEvent) {
        let record = &self.record;
        match event {
            &LedgerEvent::EpochBegan { engine, epoch, ref why } => {
                record.note("epoch", &[epoch.0]);
                record.explain(|| why.clone().into_owned());
                let mut state = self.state.lock();
                state.num_epochs += 1;
                if epoch <= state.epoch {
                    let last = state.epoch;
                    record.violate(|| format!("{epoch:?} begins after {last:?}"));
                }
                state.epoch = epoch;
                state.epochs.insert(engine, epoch);
                drop(state);
                self.recoveries.send_modify(|count| *count += 1);
            }
            &LedgerEvent::Accepted { ref requests, tenant, .. } => {
                for request in requests {
                    record.note("accepted", &[request.id.0]);
                    self.check_acceptance(request, tenant);
                }
            }
            LedgerEvent::Committed { epoch, commit, .. } => {
                let (at, count) = (commit.position as u64, commit.produced.tokens().len() as u64);
                record.note("commit", &[epoch.0, commit.request.0, at, count]);
                self.check_commit(*epoch, commit);
            }
            &LedgerEvent::Ended { request, position, ref reason, .. } => {
                record.note("ended", &[request.0, position as u64]);
                record.explain(|| format!("request {request} ended: {reason:?}"));
                self.check_end(request);
            }
            &LedgerEvent::Forgotten { request } => {
                record.note("forgotten", &[request.0]);
                self.check_forgotten(request);
            }
            LedgerEvent::Assigned { requests, engine } => {
                let mut state = self.state.lock();
                for request in requests {
                    record.note("assigned", &[request.0, engine.0 as u64]);
                    if let Some(shadow) = state.requests.get_mut(request) {
                        shadow.engine = *engine;
                    }
                }
            }
            LedgerEvent::Scheduled(_)
            | LedgerEvent::StepSucceeded
            | LedgerEvent::EndMoved { .. }
            | LedgerEvent::OutOfMemory
            | LedgerEvent::StepFailed { .. }
            | LedgerEvent::ModelConvicted => {}
        }
    }

    fn check_commit(&self, epoch: Epoch, commit: &Commit) {
        let mut locked = self.state.lock();
        let state = &mut *locked;
        self.moved(state);
        let request = commit.request;
        let Some(shadow) = state.requests.get_mut(&request) else {
            self.record.violate(|| format!("a commit for request {request} without acceptance"));
            return;
        };
        // The first epoch began before the observer was set, so its event was not seen.
        let current = state.epochs.get(&shadow.engine).copied().unwrap_or(epoch);
        if epoch != current {
            self.record.violate(|| format!("a commit of {epoch:?} is taken in {current:?}"));
        }
        if shadow.has_ended {
            self.record.violate(|| format!("request {request} gets a commit after its end"));
        }
        if commit.position != shadow.num_tokens {
            let held = shadow.num_tokens;
            let at = commit.position;
            self.record
                .violate(|| format!("request {request} has {held} tokens, gets one at {at}"));
        }
        if commit.produced.pooled().is_some() && commit.finish.is_none() {
            self.record.violate(|| format!("request {request} is pooled and does not end"));
        }
        shadow.num_tokens = commit.position + commit.produced.tokens().len();
        shadow.has_ended = commit.finish.is_some();
        shadow.news_since.get_or_insert(state.moved_at);
        state.num_live -= usize::from(commit.finish.is_some());
    }

    fn check_end(&self, request: RequestId) {
        let mut locked = self.state.lock();
        let state = &mut *locked;
        self.moved(state);
        match state.requests.get_mut(&request) {
            // A stop string may end a request that ended by its length, before its end is
            // delivered.
            Some(shadow) if !shadow.is_forgotten => {
                let was_live = !std::mem::replace(&mut shadow.has_ended, true);
                shadow.news_since.get_or_insert(state.moved_at);
                state.num_live -= usize::from(was_live);
            }
            _ => self.record.violate(|| format!("request {request} ends though it is unknown")),
        }
    }

    fn check_forgotten(&self, request: RequestId) {
        let mut state = self.state.lock();
        match state.requests.get_mut(&request) {
            // The message about a stop string may be lost. The delivery of the end says the same.
            Some(shadow) if !shadow.is_forgotten => {
                let was_live = !std::mem::replace(&mut shadow.has_ended, true);
                shadow.is_forgotten = true;
                state.num_live -= usize::from(was_live);
            }
            _ => self.record.violate(|| format!("request {request} is forgotten again")),
        }
    }
}

impl Observer for Checker {
    fn compile_delay(&self, format: &StructuredOutput) -> Duration {
        grammar::delay(format)
    }

    fn encode_delay(&self) -> Duration {
        self.encode_delay_of(0)
    }

    fn step_delay(&self) -> Duration {
        self.step_delay_of(0)
    }

    fn observe(&self, what: &Observed<'_>) {
        self.check_wakeup(what);
        if let Observed::Ledger { event, state } = *what {
            self.replay(event, state);
            self.observe_ledger(event);
        }
        self.check_core(0, what);
        self.note(what);
    }
}

impl Checker {
    /// Records an event of actors and messages.
    fn note(&self, what: &Observed<'_>) {
        let record = &self.record;
        match *what {
            Observed::Message { edge, delivery } => {
                let Delivery { copies, delay } = delivery;
                if delivery != Delivery::PLAIN {
                    record.trouble_until(delay.unwrap_or_default());
                }
                let delay = delay.map_or(0, |delay| delay.as_micros() as u64);
                let numbers = [u64::from(copies), delay];
                match (edge, numbers) {
                    (Edge::TIMER, [1, 0]) => record.note_silently(edge.as_str(), &numbers),
                    _ => record.note(edge.as_str(), &numbers),
                }
            }
            Observed::Struck { role, index, how } => {
                record.trouble();
                record.note(how.as_str(), &[role as u64, index as u64]);
                record.explain(|| format!("{} {index}: {}", role.as_str(), how.as_str()));
            }
            Observed::Died { role, cause } => {
                self.state.lock().num_deaths += 1;
                record.note("died", &[role as u64]);
                record.explain(|| format!("{} died: {cause}", role.as_str()));
                if cause.contains("invariant broken") {
                    record.violate(|| format!("{} died: {cause}", role.as_str()));
                }
            }
            Observed::Ledger { .. }
            | Observed::KvCache { .. }
            | Observed::EncoderCache { .. }
            | Observed::Step { .. } => {}
        }
    }
}

/// Returns request, computed tokens and tokens to compute for each request, new ones first.
fn brief(output: &SchedulerOutput) -> Vec<(u64, usize, usize)> {
    let new = output.scheduled_new.iter();
    let new = new.map(|d| (d.request.id.0, d.num_computed_tokens, d.num_scheduled_tokens));
    let cached = output.scheduled_cached.iter();
    let cached = cached.map(|d| (d.request.0, d.num_computed_tokens, d.num_scheduled_tokens));
    new.chain(cached).collect()
}
