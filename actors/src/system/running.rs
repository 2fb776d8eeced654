//! One running actor system: its door, its health and its end.

use std::{sync::Arc, time::Duration};

use ractor::ActorRef;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    canary,
    config::SystemConfig,
    context::Context,
    engine_process::EngineProcess,
    engines::{EngineStart, Engines},
    journal::Journal,
    linked::{LinkedExecutors, LinkedGrammars},
    memory::MemoryBudget,
    part::Part,
    sink::ChoiceStream,
    submit::{Door, RETRY_PAUSE, Submission, unavailable},
    text_jobs::TextJobs,
    tree,
};
use crate::{
    error::{ActorError, RequestError},
    logic::{
        recovery::{breaker::BreakerState, sanity::ModelState},
        request::{
            EngineRequest,
            ids::{EngineIndex, Epoch, RequestId},
        },
        scheduler::{PauseState, SchedulerConfigError, SchedulerStats},
    },
    message::{
        EncoderCacheManagerMessage, LedgerMessage, Role, SchedulerMessage, SupervisorMessage,
        input_processor::RawRequest,
    },
    ports::{ExecutorFactory, GrammarCompiler, ModelInfo, TextCodec},
    supervision::{
        address::Address,
        directory::{ActorStats, CoreSlots, Directory},
        watchdog,
    },
};

/// A running actor system. Dropping it does not stop it: see [`System::shutdown`].
pub struct System {
    context: Arc<Context>,
    root: ActorRef<SupervisorMessage>,
    root_task: JoinHandle<()>,
    door: Arc<Door>,
}

/// Whether the system can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It has started, and serves soon.
    Starting,
    /// It serves.
    Ready,
    /// It makes no progress: a part is being replaced, has failed too often, or hangs.
    Recovering,
    /// It runs, but its results are not valid.
    Unhealthy(Unhealthy),
    /// It finishes its open requests and takes no new ones.
    Draining,
    /// The supervisors gave up, or it was shut down.
    Dead,
}

/// The reason why the results of a running system are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unhealthy {
    /// The model's logits are not finite, for any request.
    NonFiniteLogits,
}

impl Unhealthy {
    /// Returns the name of the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NonFiniteLogits => "non_finite_logits",
        }
    }
}

/// The state of a system in numbers.
#[derive(Debug, Clone)]
pub struct Status {
    /// Accepted requests whose end was not delivered.
    pub open_requests: usize,
    /// The scheduler's figures.
    pub scheduler: SchedulerStats,
    /// Number of actors replaced so far.
    pub restarts: u64,
}

impl System {
    /// Starts the actors over a loaded model. Must be called within a tokio runtime. They serve a
    /// moment later: see [`System::ready`].
    ///
    /// # Errors
    /// [`ActorError`] when the scheduler's settings are invalid or an actor could not be started.
    pub async fn spawn(
        config: SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
        grammars: Arc<dyn GrammarCompiler>,
        seed: u64,
    ) -> Result<Self, ActorError> {
        Self::start(Arc::new(Context::new(config, executors, codec, grammars)), seed).await
    }

    /// Starts the front's actors. The core of each engine runs in processes, of which the first has
    /// loaded its model already. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// As [`System::spawn`].
    pub async fn spawn_front(
        mut config: SystemConfig,
        info: ModelInfo,
        codec: Arc<dyn TextCodec>,
        first: EngineStart,
        others: Vec<EngineStart>,
        seed: u64,
    ) -> Result<Self, ActorError> {
        config.num_engines = 1 + others.len();
        let engines = Arc::new(Engines::new(first, others));
        let executors = Arc::new(LinkedExecutors::new(info, Arc::clone(&engines)));
        let part = Part::Front(engines);
        let grammars = Arc::new(LinkedGrammars);
        let context = Context::of_part(part, 0, config, executors, codec, grammars);
        Self::start(Arc::new(context), seed).await
    }

    async fn start(context: Arc<Context>, seed: u64) -> Result<Self, ActorError> {
        let invalid = |error: SchedulerConfigError| ActorError::Invariant(error.to_string());
        context.config.scheduler.validate().map_err(invalid)?;
        let (root, root_task) = tree::spawn(&context)
            .await
            .map_err(|error| ActorError::Invariant(format!("the tree did not start: {error}")))?;
        watchdog::spawn(&context)
            .map_err(|error| ActorError::Invariant(format!("no watchdog: {error}")))?;
        let door = Arc::new(Door::new(Arc::clone(&context), seed));
        drop(tokio::spawn(canary::watch(Arc::clone(&context), Arc::downgrade(&door))));
        let ended = Arc::clone(&context);
        let root_task = tokio::spawn(async move {
            // When the root has ended for any reason, no actor is left that would end the streams.
            let _ = root_task.await;
            ended.clients.sinks.end_all();
        });
        Ok(Self { context, root, root_task, door })
    }

    /// Waits until the system can serve for the first time.
    ///
    /// # Errors
    /// [`ActorError`] when the supervisors gave up before that.
    pub async fn ready(&self) -> Result<(), ActorError> {
        while tokio::time::timeout(RETRY_PAUSE, self.context.observers.progress.begun())
            .await
            .is_err()
        {
            if self.root_task.is_finished() {
                let reason = "the supervisors gave up before the first epoch".to_owned();
                return Err(ActorError::Invariant(reason));
            }
        }
        // The first requests are spread over all engines.
        let give_up = Instant::now() + self.context.config.call_timeout;
        let engines = self.context.part.front();
        while engines.is_some_and(|engines| !engines.do_all_serve()) && Instant::now() < give_up {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Ok(())
    }

    /// Accepts a request, even if an actor dies meanwhile.
    ///
    /// # Errors
    /// [`RequestError`] names the fault of the request, or says that the engine is full or
    /// draining.
    pub async fn submit(&self, raw: RawRequest) -> Result<Submission, RequestError> {
        self.door.submit(raw).await
    }

    /// Accepts a further part of an accepted request. Neither a drain, nor a breaker that has
    /// opened since, nor a full engine rejects it.
    ///
    /// # Errors
    /// [`RequestError`] names the fault of the request.
    pub async fn submit_part(&self, raw: RawRequest) -> Result<Submission, RequestError> {
        self.door.admit_part(raw).await
    }

    /// Returns the journal, if requests survive the process.
    #[must_use]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.context.config.journal.as_ref()
    }

    /// Reserves so many ids of requests. Returns the first.
    #[must_use]
    pub fn reserve_requests(&self, count: u64) -> RequestId {
        self.door.reserve(count)
    }

    /// Accepts requests of one prompt that an earlier process has accepted. No limit applies to
    /// them. Returns their streams.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] if the ledger does not answer.
    pub async fn restore(
        &self,
        requests: Vec<Arc<EngineRequest>>,
    ) -> Result<Vec<ChoiceStream>, RequestError> {
        self.door.restore(requests).await
    }

    /// Returns whether a request is accepted and has not ended.
    #[must_use]
    pub fn is_live(&self, request: RequestId) -> bool {
        self.context.ledger().is_live(request)
    }

    /// Returns the jobs of tokenizing and templating, which take turns.
    #[must_use]
    pub fn text_jobs(&self) -> &Arc<TextJobs> {
        &self.context.vault.text_jobs
    }

    /// Aborts requests. Their streams end with finish reason `abort`.
    pub fn abort(&self, requests: Vec<RequestId>) {
        self.context.directory.ledger.cast(LedgerMessage::Abort(requests));
    }

    /// Returns the actors' addresses, for tests and for embedding programs that watch actors.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.context.directory
    }

    /// Returns the memory for requests. Work for a request leases its memory before it allocates.
    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.context.clients.memory
    }

    /// Returns the number of clients whose streams were not dropped.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.context.clients.sinks.len()
    }

    /// Returns the state of every actor, supervisors first.
    #[must_use]
    pub fn actors(&self) -> Vec<ActorStats> {
        let now = self.context.now();
        self.context.directory.slots().map(|slot| slot.actor_stats(now)).collect()
    }

    /// Returns the current epoch. It grows whenever the core starts over.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.context.ledger().epoch()
    }

    /// Returns the control that injects faults.
    #[must_use]
    pub fn chaos(&self) -> super::chaos::ChaosControl<'_> {
        super::chaos::ChaosControl { context: &self.context }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns whether the system can serve.
    #[must_use]
    pub fn health(&self) -> Health {
        let context = &self.context;
        let now = context.now();
        let has_core = context.directory.ledger.is_alive()
            && context.directory.cores().any(CoreSlots::is_alive);
        let is_closed = context.clients.gate.breaker().state(now) == BreakerState::Closed;
        let is_stuck = context.observers.progress.is_late(now) && self.open_requests() > 0;
        if self.root_task.is_finished() {
            Health::Dead
        } else if self.door.is_draining() {
            Health::Draining
        } else if !context.observers.progress.has_begun() {
            Health::Starting
        } else if context.ledger().model_state() == ModelState::NonFiniteLogits {
            Health::Unhealthy(Unhealthy::NonFiniteLogits)
        } else if is_stuck || !is_closed || !has_core {
            Health::Recovering
        } else {
            Health::Ready
        }
    }

    /// Returns why the breaker is open, if it is. The reason has no text of a client.
    #[must_use]
    pub fn breaker_reason(&self) -> Option<String> {
        self.context.clients.gate.closed_because(self.context.now())
    }

    /// Returns the number of accepted requests whose end was not delivered.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.context.ledger().num_open()
    }

    /// Returns the state of the system in numbers.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the scheduler is being replaced.
    pub async fn status(&self) -> Result<Status, RequestError> {
        let limit = self.context.config.call_timeout;
        let stats = self.of_each_core(
            |core| core.scheduler.call("stats", limit, SchedulerMessage::Stats),
            |_| (),
        );
        let scheduler = stats.await.map_err(unavailable)?.into_iter().reduce(SchedulerStats::and);
        let scheduler = scheduler.unwrap_or_default();
        let restarts = self.context.directory.restarts();
        Ok(Status { open_requests: self.open_requests(), scheduler, restarts })
    }

    /// Drops all cached prefixes. Returns `false` when running requests hold blocks, unless
    /// `reset_running` preempts these.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the core is being replaced.
    pub async fn reset_prefix_cache(&self, reset_running: bool) -> Result<bool, RequestError> {
        let limit = self.context.config.call_timeout;
        let reset = |reply| {
            let reset_running_requests = reset_running;
            SchedulerMessage::ResetPrefixCache { reset_running_requests, reply }
        };
        let done = self.of_each_core(
            |core| core.scheduler.call("reset_prefix_cache", limit, reset),
            // The next process adopts the content of the one before.
            EngineProcess::reset_later,
        );
        let done = done.await.map_err(unavailable)?;
        let engines = self.context.part.front().into_iter().flat_map(|engines| engines.all());
        engines.for_each(|process| process.was_reset());
        Ok(done.into_iter().all(|done| done))
    }

    /// Asks the core of each engine, one after the other. With several engines, one whose process
    /// is being replaced has no figures. It is left out, and `leave_out` is called with it.
    async fn of_each_core<'a, T, F>(
        &'a self,
        ask: impl Fn(&'a CoreSlots) -> F,
        leave_out: impl Fn(&EngineProcess),
    ) -> Result<Vec<T>, ActorError>
    where
        F: Future<Output = Result<T, ActorError>>,
    {
        let several = self.context.part.front().filter(|engines| engines.are_several());
        let mut answers = Vec::new();
        for (index, core) in self.context.directory.cores().enumerate() {
            let process = several.and_then(|engines| engines.get(EngineIndex(index)));
            let mut answer = ask(core).await;
            if answer.is_err()
                && let Some(process) = process.filter(|process| !process.is_serving())
            {
                leave_out(process);
                if !process.is_serving() {
                    continue;
                }
                // The next one may have begun without it.
                answer = ask(core).await;
            }
            answers.push(answer?);
        }
        match answers.is_empty() {
            true => Err(ActorError::Gone { callee: Role::Scheduler.as_str() }),
            false => Ok(answers),
        }
    }

    /// Drops the embeddings of all images and sounds that no request needs now.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the core is being replaced.
    pub async fn reset_encoder_cache(&self) -> Result<(), RequestError> {
        let limit = self.context.config.call_timeout;
        let done = self.of_each_core(
            |core| {
                let reset = EncoderCacheManagerMessage::Reset;
                core.encoder_cache_manager.call("reset_encoder_cache", limit, reset)
            },
            // The embeddings end with their process.
            |_| (),
        );
        done.await.map(drop).map_err(unavailable)
    }

    /// Sets a pause of new requests, of all, or of none. A pause of none also ends a sleep.
    pub fn set_pause(&self, pause: PauseState) {
        // Without a condition, the pause is always set.
        let _ = self.set_pause_if(pause, |_| true);
    }

    /// Sets a pause if `holds` accepts the number of pauses and resumptions before it. Returns the
    /// new number.
    pub(crate) fn set_pause_if(
        &self,
        pause: PauseState,
        holds: impl FnOnce(u64) -> bool,
    ) -> Option<u64> {
        let number = self.context.ground.hold.set_if(pause, holds)?;
        for core in self.context.directory.cores() {
            core.scheduler.cast(SchedulerMessage::PauseChanged);
        }
        Some(number)
    }

    /// Rejects new requests from now on.
    pub fn begin_drain(&self) {
        self.door.begin_drain();
    }

    /// Rejects new requests and waits until all open ones have ended. Returns `false` when some are
    /// left after `limit`.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.begin_drain();
        let give_up = Instant::now() + limit;
        while self.open_requests() > 0 {
            if Instant::now() >= give_up || self.root_task.is_finished() {
                return false;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        true
    }

    /// Aborts open requests and stops all actors, children before parents.
    pub async fn shutdown(&self) {
        self.begin_drain();
        // Open requests continue in the next process, so their end here is not recorded.
        if let Some(journal) = self.journal() {
            journal.end_engine(self.health() != Health::Dead).await;
        }
        let open = self.context.ledger().open_requests();
        if !open.is_empty() {
            self.abort(open);
            self.drain(Duration::from_secs(1)).await;
        }
        self.context.stop_watching();
        let limit = Duration::from_secs(10);
        // Without an answer, the root has ended already.
        let root = Address::from(self.root.clone());
        let _ = root.ask(SupervisorMessage::Shutdown, limit).await;
        let _ = self.root.wait(Some(limit)).await;
        // The task ends right after the actor.
        while !self.root_task.is_finished() {
            tokio::task::yield_now().await;
        }
        if let Some(recorder) = &self.context.config.recorder {
            recorder.close().await;
        }
        self.context.observers.metrics.ended();
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("health", &self.health()).finish_non_exhaustive()
    }
}
