//! A replay: the recorded inputs go to another scheduler and KV cache manager, and what they decide
//! is compared with the recording.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Began, Entry, Executed, KvCacheBegan, KvContentKept, PlannedStep, RowDone, Scan, StopCause,
    entry::PlannedRow,
};
use crate::logic::{
    adapter_slots::AdaptersInUse,
    kv_cache::{BlockDirectory, KvCacheManager},
    ledger::Restriction,
    request::{
        EngineRequest,
        ids::{Epoch, Micros, RequestId, Step},
        outputs::{Commit, StepOutput},
    },
    scheduler::{Resource, Scheduled, Scheduler, SchedulerConfigError, output::SchedulerOutput},
};

/// Computes the steps of a replay.
pub trait Device {
    /// Takes the recorded content of a request's images and sounds, before any step has them.
    fn take_content(&mut self, _request: &EngineRequest) {}

    /// Prepares a resource that was ready when the recording was made.
    ///
    /// # Errors
    /// [`DeviceFault`] if it is not available now.
    fn prepare(&mut self, resource: &Resource, in_use: &AdaptersInUse) -> Result<(), DeviceFault>;

    /// Takes a planned step with work or news. Steps come in the order of their plans.
    fn give(&mut self, step: SchedulerOutput);

    /// Computes the given steps of this epoch up to a step, and returns its results. `recorded` are
    /// its recorded results. Without a model, they are returned.
    ///
    /// # Errors
    /// [`DeviceFault`] if the step cannot be computed.
    fn compute(
        &mut self,
        epoch: Epoch,
        step: Step,
        recorded: &[RowDone],
    ) -> Result<Vec<RowDone>, DeviceFault>;
}

/// The reason why a step could not be computed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceFault(pub String);

/// No model: the recorded results are taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDevice;

impl Device for NoDevice {
    fn prepare(&mut self, _: &Resource, _: &AdaptersInUse) -> Result<(), DeviceFault> {
        Ok(())
    }

    fn give(&mut self, _: SchedulerOutput) {}

    fn compute(
        &mut self,
        _: Epoch,
        _: Step,
        recorded: &[RowDone],
    ) -> Result<Vec<RowDone>, DeviceFault> {
        Ok(recorded.to_vec())
    }
}

/// The effect of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An input. No step was planned or done.
    Input,
    /// A step was planned, as recorded.
    Planned(Box<Scheduled>),
    /// A step was done, with the recorded results.
    Done {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
        /// The results.
        rows: Vec<RowDone>,
        /// The tokens and ends that follow from them.
        commits: Vec<Commit>,
    },
    /// The recording stops.
    Stopped(StopCause),
}

/// The reason why a replay stops before the end of its recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The recorded settings are not valid.
    #[error("the recorded settings: {0}")]
    Config(#[from] SchedulerConfigError),
    /// Another step is planned.
    #[error("step {}: the schedule differs{}: {recorded} in the recording, {replayed} now",
        step.0, of_request(*request))]
    Schedule {
        /// The step.
        step: Step,
        /// The first request that differs.
        request: Option<RequestId>,
        /// The recorded plan of the request or of the step.
        recorded: String,
        /// The plan now.
        replayed: String,
    },
    /// A step has other results.
    #[error("step {}: the results differ{}: {recorded} in the recording, {replayed} now",
        step.0, of_request(*request))]
    Results {
        /// The step.
        step: Step,
        /// The first request that differs.
        request: Option<RequestId>,
        /// The recorded result.
        recorded: String,
        /// The result now.
        replayed: String,
    },
    /// A step cannot be computed.
    #[error("step {}: {fault}", step.0)]
    Device {
        /// The step, or the last one before.
        step: Step,
        /// The fault.
        fault: DeviceFault,
    },
    /// The recording contradicts itself.
    #[error("entry {entry} after step {}: {what}", step.0)]
    Invalid {
        /// The index of the entry, from 1.
        entry: usize,
        /// The last planned step.
        step: Step,
        /// The contradiction.
        what: String,
    },
}

fn of_request(request: Option<RequestId>) -> String {
    request.map(|request| format!(" for request {request}")).unwrap_or_default()
}

/// A replay of one recording. It can be advanced to the recording's end.
#[derive(Debug, Clone)]
pub struct Replay {
    began: Arc<Began>,
    entries: Arc<[Entry]>,
    next: usize,
    scheduler: Scheduler,
    kv_cache: KvCacheManager,
    directory: BlockDirectory,
    /// Whether a step was begun whose plan is not complete.
    is_planning: bool,
    requests: BTreeSet<RequestId>,
    num_steps: usize,
}

impl Replay {
    /// Returns the replay of a recording, before its first entry.
    ///
    /// # Errors
    /// [`ReplayError::Config`] if no scheduler can have the recorded settings.
    pub fn new(scan: Scan) -> Result<Self, ReplayError> {
        let Scan { began, entries, .. } = scan;
        began.scheduler.validate()?;
        Ok(Self::begin(Arc::new(began), entries.into()))
    }

    fn begin(began: Arc<Began>, entries: Arc<[Entry]>) -> Self {
        Self {
            scheduler: Scheduler::new(began.scheduler.clone()),
            kv_cache: KvCacheManager::new(&began.scheduler.kv_cache()),
            directory: BlockDirectory::default(),
            is_planning: false,
            next: 0,
            requests: BTreeSet::new(),
            num_steps: 0,
            entries,
            began,
        }
    }

    /// Returns the same replay before its first entry.
    #[must_use]
    pub fn restarted(&self) -> Self {
        Self::begin(Arc::clone(&self.began), Arc::clone(&self.entries))
    }

    /// Returns the facts about the recorded engine.
    #[must_use]
    pub fn began(&self) -> &Began {
        &self.began
    }

    /// Returns the scheduler as it is now.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Returns the KV cache manager as it is now.
    #[must_use]
    pub fn kv_cache(&self) -> &KvCacheManager {
        &self.kv_cache
    }

    /// Returns the number of requests so far.
    #[must_use]
    pub fn num_requests(&self) -> usize {
        self.requests.len()
    }

    /// Returns the number of steps planned so far.
    #[must_use]
    pub fn num_steps(&self) -> usize {
        self.num_steps
    }

    /// Returns the entry that comes next.
    #[must_use]
    pub fn peek(&self) -> Option<&Entry> {
        self.entries.get(self.next)
    }

    /// Returns the recorded results of a step that was planned, if its scheduler got them.
    #[must_use]
    pub fn results_of(&self, epoch: Epoch, step: Step) -> &[RowDone] {
        let rest = self.entries.get(self.next..).unwrap_or_default().iter();
        let mut results = rest.filter_map(|entry| match entry {
            Entry::StepDone { epoch: of, step: done, rows, .. } => {
                ((*of, *done) == (epoch, step)).then_some(&rows[..])
            }
            _ => None,
        });
        results.next().unwrap_or_default()
    }

    /// Applies the next entry. Returns `None` at the end of the recording.
    ///
    /// # Errors
    /// [`ReplayError`] at the first difference from the recording, or if it contradicts itself. The
    /// replay cannot go on then.
    pub fn advance(&mut self, device: &mut dyn Device) -> Result<Option<Event>, ReplayError> {
        let entries = Arc::clone(&self.entries);
        let Some(entry) = entries.get(self.next) else { return Ok(None) };
        self.next += 1;
        let belongs_to_plan = matches!(entry, Entry::StepPlanned(_) | Entry::KvCacheBegan(_));
        if self.is_planning && !belongs_to_plan {
            // The scheduler, or the KV cache manager, died while the step was planned.
            self.is_planning = false;
            let executed = self.executed_before_next_epoch();
            if executed.step == self.scheduler.step() {
                self.plan(executed.rounds)?;
            }
            // The last plan was made and not executed, or its scheduler has died.
            drop(self.scheduler.next_plan());
        }
        self.apply(entry, device).map(Some)
    }

    fn apply(&mut self, entry: &Entry, device: &mut dyn Device) -> Result<Event, ReplayError> {
        match entry {
            Entry::Began(_) => return Err(self.invalid("it begins the recording once more")),
            Entry::SchedulerStarted => {
                self.scheduler = Scheduler::new(self.began.scheduler.clone());
            }
            Entry::Recovered { epoch, last_step, live } => {
                if live.iter().any(|live| live.request.prompt_token_ids.is_empty()) {
                    return Err(self.invalid("a request has no prompt"));
                }
                self.requests.extend(live.iter().map(|live| live.request.id));
                live.iter().for_each(|live| device.take_content(&live.request));
                self.scheduler.recover(*epoch, *last_step, live.clone());
            }
            Entry::Added(requests) => {
                if requests.iter().any(|request| request.prompt_token_ids.is_empty()) {
                    return Err(self.invalid("a request has no prompt"));
                }
                self.requests.extend(requests.iter().map(|request| request.id));
                for request in requests {
                    device.take_content(request);
                    self.scheduler.add(Arc::clone(request));
                }
            }
            Entry::Aborted(requests) => drop(self.scheduler.finish(requests)),
            Entry::Restricted(Restriction { cohort, token_budget }) => {
                self.scheduler.set_cohort(cohort.clone());
                self.scheduler.set_token_budget(*token_budget);
            }
            Entry::Paused(pause) => self.scheduler.set_pause(*pause),
            Entry::ResetAsked { reset_running } => {
                self.scheduler.reset_prefix_cache(*reset_running);
            }
            Entry::Resolved { resource, ready } => {
                if ready.is_ok() {
                    let in_use = self.scheduler.adapters_in_use();
                    let prepared = device.prepare(resource, &in_use);
                    prepared.map_err(|fault| self.device_fault(self.scheduler.step(), fault))?;
                }
                drop(self.scheduler.resolve(resource, ready.clone()));
            }
            Entry::Encoded(answer) => drop(self.scheduler.encoded(answer.clone())),
            Entry::NeedsTaken => drop(self.scheduler.take_encoder_needs()),
            Entry::StepBegan { now } => {
                self.scheduler.begin_step(*now).map_err(|error| self.invalid(error))?;
                self.is_planning = true;
            }
            Entry::KvCacheBegan(began) => self.begin_kv_cache(began),
            Entry::StepPlanned(planned) => return self.planned(planned, device),
            Entry::StepDone { epoch, step, now, rows } => {
                return self.done(*epoch, *step, *now, rows, device);
            }
            Entry::Stopped(cause) => return Ok(Event::Stopped(*cause)),
        }
        // Nothing provides resources here: the recording says when they are ready.
        drop(self.scheduler.take_wanted());
        Ok(Event::Input)
    }

    /// Executes at most `most` plans of the step that is being planned.
    fn plan(&mut self, most: u32) -> Result<(), ReplayError> {
        for _ in 0..most {
            let Some(plan) = self.scheduler.next_plan() else { return Ok(()) };
            if !self.directory.is_written_by(plan.epoch) {
                self.directory.begin_epoch(plan.epoch, |_| Some(usize::MAX));
            }
            let executed = self.kv_cache.execute(&plan);
            let updates = self.kv_cache.drain_directory_updates();
            self.directory.update(plan.epoch, updates);
            let allocation = executed.map_err(|error| self.invalid(error))?;
            self.scheduler.apply(allocation).map_err(|error| self.invalid(error))?;
        }
        Ok(())
    }

    fn planned(
        &mut self,
        recorded: &PlannedStep,
        device: &mut dyn Device,
    ) -> Result<Event, ReplayError> {
        if !std::mem::take(&mut self.is_planning) {
            return Err(self.invalid("a step was planned that was not begun"));
        }
        self.plan(u32::MAX)?;
        let scheduled = self.scheduler.finish_step().map_err(|error| self.invalid(error))?;
        self.num_steps += 1;
        let replayed = PlannedStep::of(&scheduled);
        if replayed != *recorded {
            return Err(schedule_differs(recorded, &replayed));
        }
        if scheduled.output.has_news() {
            device.give(scheduled.output.clone());
        }
        drop(self.scheduler.take_wanted());
        Ok(Event::Planned(Box::new(scheduled)))
    }

    fn done(
        &mut self,
        epoch: Epoch,
        step: Step,
        now: Micros,
        recorded: &[RowDone],
        device: &mut dyn Device,
    ) -> Result<Event, ReplayError> {
        let is_awaited =
            epoch == self.scheduler.epoch() && self.scheduler.step_in_flight() == Some(step);
        // Results that no scheduler took are not computed again.
        if is_awaited {
            let computed = device.compute(epoch, step, recorded);
            let rows = computed.map_err(|fault| self.device_fault(step, fault))?;
            results_agree(step, recorded, &rows)?;
        }
        let outputs = recorded.iter().map(RowDone::output).collect();
        let commits = self.scheduler.update_from_output(StepOutput { epoch, step, outputs }, now);
        drop(self.scheduler.take_wanted());
        Ok(Event::Done { epoch, step, rows: recorded.to_vec(), commits })
    }

    fn begin_kv_cache(&mut self, began: &KvCacheBegan) {
        let KvCacheBegan { epoch, content, live, .. } = began;
        let lengths: BTreeMap<RequestId, usize> = live.iter().copied().collect();
        let is_known = self.directory.is_written_by(self.kv_cache.epoch());
        if *content == KvContentKept::Nothing {
            let _ = self.directory.lose_content();
        }
        self.directory.begin_epoch(*epoch, |request| lengths.get(&request).copied());
        if *content == KvContentKept::Manager && is_known {
            self.kv_cache.continue_in(*epoch, self.directory.tails());
        } else {
            let config = self.began.scheduler.kv_cache();
            let (sealed, tails) = (self.directory.sealed(), self.directory.tails());
            self.kv_cache = KvCacheManager::from_directory(&config, *epoch, sealed, tails);
        }
    }

    /// Returns the plans that the KV cache manager had executed when its next epoch began.
    fn executed_before_next_epoch(&self) -> Executed {
        let rest = self.entries.get(self.next..).unwrap_or_default().iter();
        let mut began = rest.filter_map(|entry| match entry {
            Entry::KvCacheBegan(began) => Some(began.executed),
            _ => None,
        });
        began.next().unwrap_or_default()
    }

    fn invalid(&self, what: impl ToString) -> ReplayError {
        ReplayError::Invalid {
            entry: self.next,
            step: self.scheduler.step(),
            what: what.to_string(),
        }
    }

    fn device_fault(&self, step: Step, fault: DeviceFault) -> ReplayError {
        ReplayError::Device { step, fault }
    }
}

/// Returns the first difference of two plans.
fn schedule_differs(recorded: &PlannedStep, replayed: &PlannedStep) -> ReplayError {
    let num_rows = recorded.rows.len().max(replayed.rows.len());
    let differing =
        (0..num_rows).find(|&index| recorded.rows.get(index) != replayed.rows.get(index));
    let words = |row: Option<&PlannedRow>| match row {
        Some(PlannedRow { request, num_tokens }) => {
            format!("{num_tokens} tokens of request {request}")
        }
        None => "no further request".to_owned(),
    };
    let (request, recorded_part, replayed_part) = match differing {
        Some(index) => {
            let (then, now) = (recorded.rows.get(index), replayed.rows.get(index));
            (then.or(now).map(|row| row.request), words(then), words(now))
        }
        None => {
            let words =
                |plan: &PlannedStep| format!("step {} of hash {:016x}", plan.step.0, plan.hash);
            (None, words(recorded), words(replayed))
        }
    };
    ReplayError::Schedule {
        step: recorded.step,
        request,
        recorded: recorded_part,
        replayed: replayed_part,
    }
}

/// Compares the results of a step with the recorded ones.
fn results_agree(step: Step, recorded: &[RowDone], now: &[RowDone]) -> Result<(), ReplayError> {
    let num_rows = recorded.len().max(now.len());
    let differs = |&index: &usize| match (recorded.get(index), now.get(index)) {
        (Some(recorded), Some(now)) => !recorded.agrees_with(now),
        _ => true,
    };
    let Some(index) = (0..num_rows).find(differs) else { return Ok(()) };
    let (recorded, now) = (recorded.get(index), now.get(index));
    let words = |row: Option<&RowDone>| row.map_or("nothing".to_owned(), ToString::to_string);
    Err(ReplayError::Results {
        step,
        request: recorded.or(now).map(RowDone::request),
        recorded: words(recorded),
        replayed: words(now),
    })
}
