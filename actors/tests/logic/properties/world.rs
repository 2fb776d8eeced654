//! A scheduler, a KV cache manager, a device and a ledger, without actors. All their events happen
//! in any order, and invariants are checked after each step.

mod checks;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use playhouse_actors::logic::{
    kv_cache::{BlockDirectory, Demand, KvCacheManager},
    ledger::Restriction,
    recording::{Entry as Recorded, Executed, KvCacheBegan, KvContentKept, PlannedStep, RowDone},
    request::{
        EngineRequest, FinishReason,
        ids::{BlockId, Epoch, Micros, RequestId, TokenId},
        outputs::Commit,
    },
    scheduler::{
        PauseState, RecoveredRequest, Scheduled, Scheduler, SchedulerConfig, SchedulerView,
        StepStats, output::SchedulerOutput,
    },
};

use super::{
    device::{Device, EOS, expected_output},
    kept_words::KeptWords,
};

/// The value that stands for the group of the request before.
pub(crate) const SAME_GROUP: RequestId = RequestId(u64::MAX);

/// The point at which the core dies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Crash {
    BetweenSteps,
    /// While a step is planned, after this number of allocation plans.
    Planning(u8),
    /// While the device computes. The bits say which slots are left half-written.
    Computing(u64),
    /// The whole process, while the directory is written for this allocation plan of a step. The
    /// bits say after which of the plan's stores.
    Process(u8, u64),
}

#[derive(Debug)]
struct Entry {
    request: Arc<EngineRequest>,
    output: Vec<TokenId>,
    num_prompt_logprobs: usize,
    finish: Option<FinishReason>,
}

pub(crate) struct World {
    config: SchedulerConfig,
    scheduler: Scheduler,
    kv_cache: KvCacheManager,
    device: Device,
    /// Steps that are planned and not computed.
    planned: VecDeque<SchedulerOutput>,
    ledger: BTreeMap<RequestId, Entry>,
    directory: BlockDirectory,
    /// The directory in memory that outlives the process.
    kept: KeptWords,
    epoch: Epoch,
    /// The scheduler's cohort, which a new scheduler gets too.
    cohort: Option<BTreeSet<RequestId>>,
    pub(crate) now: Micros,
    /// Number of steps planned while one was computed.
    pub(crate) num_planned_ahead: usize,
    /// Statistics of the last planned step.
    pub(crate) stats: StepStats,
    /// The entries of a recording so far.
    pub(crate) recorded: Vec<Recorded>,
    /// Whether the whole process has died.
    pub(crate) has_lost_process: bool,
    executed: Executed,
}

/// Returns the block tables, the free blocks in their order, and the scheduler's queues.
pub(crate) fn end_state(scheduler: &Scheduler, kv_cache: &KvCacheManager) -> String {
    let tables: Vec<_> = kv_cache.tables().collect();
    let free: Vec<BlockId> = kv_cache.pool().free_block_ids().collect();
    // A scheduler that dies while it plans may have counted more than its replay.
    let SchedulerView { epoch, pause, running, waiting, .. } =
        scheduler.view(usize::MAX, usize::MAX);
    let step = scheduler.step();
    format!("{tables:?} {free:?} {epoch:?} {step:?} {pause:?} {running:?} {waiting:?}")
}

impl World {
    pub(crate) fn new(config: SchedulerConfig) -> Self {
        config.validate().unwrap();
        Self {
            scheduler: Scheduler::new(config.clone()),
            kv_cache: KvCacheManager::new(&config.kv_cache()),
            device: Device::new(
                config.num_blocks,
                config.kv_spec.groups.iter().map(|group| group.kind).collect(),
                config.async_scheduling,
            ),
            planned: VecDeque::new(),
            ledger: BTreeMap::new(),
            directory: BlockDirectory::default(),
            kept: KeptWords::new(&config.kv_cache()),
            epoch: Epoch::default(),
            cohort: None,
            now: 0,
            num_planned_ahead: 0,
            stats: StepStats::default(),
            recorded: Vec::new(),
            has_lost_process: false,
            executed: Executed::default(),
            config,
        }
    }

    pub(crate) fn add(&mut self, mut request: EngineRequest) {
        let fits = self.scheduler.check_servable(request.num_prompt_tokens()).is_ok();
        if !fits || request.num_prompt_tokens() >= self.config.max_model_len {
            return;
        }
        request.id = RequestId(self.ledger.len() as u64);
        (request.group, request.choice) = match self.ledger.values().next_back() {
            Some(before) if request.group == SAME_GROUP => {
                (before.request.group, before.request.choice + 1)
            }
            _ => (request.id, 0),
        };
        request.arrival = self.now;
        let request = Arc::new(request);
        let entry = Entry {
            request: Arc::clone(&request),
            output: Vec::new(),
            num_prompt_logprobs: 0,
            finish: None,
        };
        self.ledger.insert(request.id, entry);
        self.recorded.push(Recorded::Added(vec![Arc::clone(&request)]));
        assert!(self.scheduler.add(request));
    }

    pub(crate) fn abort(&mut self, id: RequestId) {
        let is_live = self.ledger.get(&id).is_some_and(|entry| entry.finish.is_none());
        self.recorded.push(Recorded::Aborted(vec![id]));
        assert_eq!(self.scheduler.finish(&[id]).len(), usize::from(is_live));
        if is_live {
            self.ledger.get_mut(&id).unwrap().finish = Some(FinishReason::Abort);
        }
    }

    pub(crate) fn set_pause(&mut self, pause: PauseState) {
        self.recorded.push(Recorded::Paused(pause));
        self.scheduler.set_pause(pause);
    }

    pub(crate) fn set_cohort(&mut self, cohort: Option<BTreeSet<u64>>) {
        self.cohort = cohort.map(|ids| ids.into_iter().map(RequestId).collect());
        self.scheduler.set_cohort(self.cohort.clone());
        self.record_restriction();
    }

    pub(crate) fn set_token_budget(&mut self, tokens: usize) {
        self.scheduler.set_token_budget(tokens);
        self.record_restriction();
    }

    fn record_restriction(&mut self) {
        let (cohort, token_budget) = (self.cohort.clone(), self.scheduler.token_budget());
        self.recorded.push(Recorded::Restricted(Restriction { cohort, token_budget }));
    }

    pub(crate) fn reset_prefix_cache(&mut self, reset_running: bool) {
        self.recorded.push(Recorded::ResetAsked { reset_running });
        self.scheduler.reset_prefix_cache(reset_running);
    }

    /// Plans as much as possible and computes a step. `aborted` is aborted while the device
    /// computes.
    pub(crate) fn step(&mut self, nan_rows: u32, aborted: Option<RequestId>) {
        self.plan_all();
        let Some(step) = self.planned.pop_front() else { return };
        let output = self.device.execute(&step, nan_rows);
        self.check_tables();
        if let Some(id) = aborted {
            self.abort(id);
        }
        let rows = output.outputs.iter().map(RowDone::of).collect();
        let (epoch, step, now) = (output.epoch, output.step, self.now);
        self.recorded.push(Recorded::StepDone { epoch, step, now, rows });
        let commits = self.scheduler.update_from_output(output, self.now);
        self.commit(commits);
    }

    /// Kills the core and rebuilds it from ledger and directory.
    pub(crate) fn crash(&mut self, crash: Crash, keep_kv_cache: bool, keep_scheduler: bool) {
        match crash {
            Crash::BetweenSteps => {}
            Crash::Planning(num_plans) => {
                if self.can_plan() {
                    drop(self.plan(num_plans));
                }
            }
            Crash::Computing(torn) => {
                self.plan_all();
                if let Some(step) = self.planned.front() {
                    self.device.crash(step, torn);
                }
            }
            Crash::Process(num_plans, cut) => {
                self.has_lost_process = true;
                // The plans so far were answered, so their stores are there.
                self.kept.settle();
                if self.can_plan() {
                    drop(self.plan(num_plans));
                }
                match self.planned.front().filter(|_| cut % 2 == 1) {
                    // The device computes a step, whose plans are written.
                    Some(step) => self.device.crash(step, cut),
                    None => self.kept.cut(cut),
                }
                self.directory = self.kept.adopt();
            }
        }
        let keeps_core = !matches!(crash, Crash::Process(..));
        let [keep_kv_cache, keep_scheduler] =
            [keep_kv_cache, keep_scheduler].map(|keep| keep && keeps_core);
        self.planned.clear();
        self.epoch = self.epoch.next();
        let last_step = self.scheduler.step();
        if !keep_scheduler {
            self.scheduler = Scheduler::new(self.config.clone());
            self.scheduler.set_cohort(self.cohort.clone());
            self.recorded.push(Recorded::SchedulerStarted);
            self.record_restriction();
        }
        let live = self.ledger.values().filter(|entry| entry.finish.is_none());
        let live = live.map(|entry| RecoveredRequest {
            request: Arc::clone(&entry.request),
            output_token_ids: entry.output.clone(),
            num_prompt_logprobs: entry.num_prompt_logprobs,
        });
        let live: Vec<_> = live.collect();
        let (epoch, recovered) = (self.epoch, live.clone());
        self.recorded.push(Recorded::Recovered { epoch, last_step, live: recovered });
        self.scheduler.recover(self.epoch, last_step, live);
        assert_eq!(self.scheduler.step(), last_step, "steps are never reset");
        self.check_directory();
        self.begin_kv_cache(keep_kv_cache);
    }

    /// Lets the KV cache manager, or another one, begin the epoch.
    fn begin_kv_cache(&mut self, is_kept: bool) {
        let live = self.ledger.iter().filter(|(_, entry)| entry.finish.is_none());
        let length = |entry: &Entry| entry.request.num_prompt_tokens() + entry.output.len();
        let lengths: BTreeMap<_, _> = live.map(|(id, entry)| (*id, length(entry))).collect();
        self.recorded.push(Recorded::KvCacheBegan(KvCacheBegan {
            epoch: self.epoch,
            content: match is_kept {
                true => KvContentKept::Manager,
                false => KvContentKept::Directory,
            },
            live: lengths.iter().map(|(&id, &length)| (id, length)).collect(),
            executed: self.executed,
        }));
        let forgotten = self.directory.begin_epoch(self.epoch, |id| lengths.get(&id).copied());
        self.kept.forget(&forgotten);
        let (sealed, tails) = (self.directory.sealed(), self.directory.tails());
        if is_kept {
            self.kv_cache.continue_in(self.epoch, tails);
        } else {
            let config = self.config.kv_cache();
            self.kv_cache = KvCacheManager::from_directory(&config, self.epoch, sealed, tails);
        }
    }

    /// Runs without failures until the end. All requests must be served, and no block may stay in
    /// use.
    pub(crate) fn run_out(&mut self) {
        self.set_pause(PauseState::Unpaused);
        let mut num_steps = 0;
        while self.scheduler.has_work() {
            self.step(0, None);
            self.now += 1;
            num_steps += 1;
            assert!(num_steps < 20_000, "a request waits for ever");
        }
        assert!(self.ledger.values().all(|entry| entry.finish.is_some()));
        assert_eq!(self.kv_cache.tables().count(), 0);
        assert_eq!(self.kv_cache.kept_tails().count(), 0);
        assert_eq!(self.kv_cache.pool().num_free(), self.kv_cache.pool().num_usable());
        self.check_directory();
    }

    pub(crate) fn end_state(&self) -> String {
        end_state(&self.scheduler, &self.kv_cache)
    }

    fn can_plan(&self) -> bool {
        self.scheduler.step_in_flight().is_none() || self.scheduler.can_plan_ahead()
    }

    /// Plans a step if none is planned, and the next if it can be planned ahead.
    fn plan_all(&mut self) {
        if self.planned.is_empty() {
            self.plan_one();
        }
        if self.scheduler.can_plan_ahead() {
            self.plan_one();
            self.num_planned_ahead += usize::from(self.planned.len() == 2);
        }
    }

    fn plan_one(&mut self) {
        let output = self.plan(u8::MAX).unwrap().output;
        if output.has_news() {
            self.planned.push_back(output);
        }
    }

    /// Plans a step. Stops after `num_plans` allocation plans, as if the scheduler had died.
    fn plan(&mut self, num_plans: u8) -> Option<Scheduled> {
        let cohort = self.live_cohort();
        self.recorded.push(Recorded::StepBegan { now: self.now });
        self.scheduler.begin_step(self.now).unwrap();
        let mut num_left = num_plans;
        while let Some(plan) = self.scheduler.next_plan() {
            assert!(self.scheduler.next_plan().is_none(), "one plan at a time");
            num_left = num_left.checked_sub(1)?;
            let allocation = self.kv_cache.execute(&plan).unwrap();
            self.executed = Executed { step: plan.step, rounds: plan.round + 1 };
            let updates = self.kv_cache.drain_directory_updates();
            self.check_updates(&updates);
            let forgotten = self.directory.begin_epoch(plan.epoch, |_| Some(usize::MAX));
            self.kept.forget(&forgotten);
            self.kept.update(&updates);
            self.directory.update(plan.epoch, updates);
            self.kept.check(&self.directory);
            self.check_pool();
            self.check_tails();
            self.scheduler.apply(allocation).unwrap();
        }
        let scheduled = self.scheduler.finish_step().unwrap();
        self.recorded.push(Recorded::StepPlanned(PlannedStep::of(&scheduled)));
        self.stats = scheduled.stats.clone();
        self.check_budgets(&scheduled);
        self.check_cohort(&scheduled, &cohort);
        self.commit(scheduled.ended.clone());
        Some(scheduled)
    }

    fn commit(&mut self, commits: Vec<Commit>) {
        for commit in commits {
            let entry = self.ledger.get_mut(&commit.request).unwrap();
            assert_eq!(entry.finish, None, "{:?} goes on after its end", commit.request);
            assert_eq!(commit.position, entry.output.len());
            entry.output.extend(commit.produced.tokens().iter().map(|token| token.token_id));
            let expected = expected_output(&entry.request, entry.output.len());
            assert_eq!(entry.output, expected, "another stream than without faults");
            if let Some(rows) = commit.prompt_logprobs {
                assert_eq!(rows.start, entry.num_prompt_logprobs + 1);
                entry.num_prompt_logprobs += rows.rows.len();
            }
            entry.finish = commit.finish;
            let may_end = entry.request.sampling().is_some_and(|params| !params.ignore_eos);
            let has_ended = may_end && entry.output.last() == Some(&EOS);
            assert_eq!(entry.finish == Some(FinishReason::Stop(None)), has_ended);
            let num_before = entry.output.len().saturating_sub(1);
            assert!(!may_end || !entry.output[..num_before].contains(&EOS), "it goes on");
            if entry.finish == Some(FinishReason::Length) {
                let num_tokens = entry.request.num_prompt_tokens() + entry.output.len();
                let limit = entry.request.max_total_tokens(self.config.max_model_len);
                let room = Demand::new(&self.config.kv_cache()).num_tokens_max();
                let outgrows = room.is_some_and(|room| num_tokens > room);
                assert!(num_tokens == limit || outgrows, "ended too early");
                let is_asked =
                    entry.request.sampling().is_some_and(|params| params.prompt_logprobs.is_some());
                let wanted = if is_asked { entry.request.num_prompt_tokens() - 1 } else { 0 };
                assert_eq!(entry.num_prompt_logprobs, wanted);
            }
        }
    }
}
