//! One running actor system: its door, its health, its end.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::Instant};

use super::{
    canary,
    config::SystemConfig,
    context::Context,
    memory::MemoryBudget,
    submit::{Door, RETRY_PAUSE, Submission, unavailable},
    text_jobs::TextJobs,
    tree,
};
use crate::{
    error::{ActorError, RequestError},
    logic::{
        recovery::{breaker::BreakerState, sanity::ModelState},
        request::ids::{Epoch, RequestId},
        scheduler::{PauseState, SchedulerConfigError, SchedulerStats},
    },
    message::{LedgerMessage, SchedulerMessage, SupervisorMessage, input_processor::RawRequest},
    ports::{ExecutorFactory, GrammarCompiler, TextCodec},
    supervision::{
        address::Address,
        directory::{ActorStats, Directory},
        watchdog,
    },
};

/// A running actor system. Dropping it does not stop it: see [`System::shutdown`].
pub struct System {
    context: Arc<Context>,
    root: Address<SupervisorMessage>,
    root_task: JoinHandle<()>,
    door: Arc<Door>,
}

/// Whether the system can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It will in a moment.
    Starting,
    /// It serves.
    Ready,
    /// It gets nowhere at present: a part of it is being replaced, failed too often, or hangs.
    Recovering,
    /// It runs, and what it computes is worth nothing.
    Unhealthy(Unhealthy),
    /// It finishes what it has and takes nothing new.
    Draining,
    /// The supervisors gave up, or it was shut down.
    Dead,
}

/// Why a running system is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unhealthy {
    /// The model's logits are not finite, whatever is asked.
    NonFiniteLogits,
}

impl Unhealthy {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NonFiniteLogits => "non_finite_logits",
        }
    }
}

/// How things stand.
#[derive(Debug, Clone)]
pub struct Status {
    /// Requests accepted whose end was not delivered.
    pub open_requests: usize,
    /// The scheduler's figures.
    pub scheduler: SchedulerStats,
    /// Actors replaced so far.
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
        let invalid = |error: SchedulerConfigError| ActorError::Invariant(error.to_string());
        config.scheduler.validate().map_err(invalid)?;
        let context = Arc::new(Context::new(config, executors, codec, grammars));
        let (root, root_task) = tree::spawn(&context)
            .await
            .map_err(|error| ActorError::Invariant(format!("the tree did not start: {error}")))?;
        watchdog::spawn(&context)
            .map_err(|error| ActorError::Invariant(format!("no watchdog: {error}")))?;
        let door = Arc::new(Door::new(Arc::clone(&context), seed));
        drop(tokio::spawn(canary::watch(Arc::clone(&context), Arc::downgrade(&door))));
        let ended = Arc::clone(&context);
        let root_task = tokio::spawn(async move {
            // However the root ended: those who wait for output wait for nobody.
            let _ = root_task.await;
            ended.clients.sinks.end_all();
        });
        Ok(Self { context, root, root_task, door })
    }

    /// Waits until the system can serve for the first time.
    ///
    /// # Errors
    /// [`ActorError`] when the supervisors gave up before.
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
        Ok(())
    }

    /// Accepts a request, whatever actor dies meanwhile.
    ///
    /// # Errors
    /// [`RequestError`] says what is wrong with it, or that the engine is full or draining.
    pub async fn submit(&self, raw: RawRequest) -> Result<Submission, RequestError> {
        self.door.submit(raw).await
    }

    /// Accepts a further part of what was accepted before: a drain, or a breaker that has opened
    /// since, does not refuse it.
    ///
    /// # Errors
    /// [`RequestError`] says what is wrong with it, or that the engine is full.
    pub async fn submit_part(&self, raw: RawRequest) -> Result<Submission, RequestError> {
        self.door.admit(raw).await
    }

    /// Tokenizing and templating, in the turns that requests take.
    #[must_use]
    pub fn text_jobs(&self) -> &Arc<TextJobs> {
        &self.context.vault.text_jobs
    }

    /// Stops working on requests; their streams end with finish reason `abort`.
    pub fn abort(&self, requests: Vec<RequestId>) {
        self.context.directory.ledger.cast(LedgerMessage::Abort(requests));
    }

    /// Where the actors are, for tests and for an embedding program that watches them.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.context.directory
    }

    /// The memory for requests: what is done for one takes a lease of it before it allocates.
    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.context.clients.memory
    }

    /// Clients whose streams were not dropped.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.context.clients.sinks.len()
    }

    /// How every actor does, supervisors first.
    #[must_use]
    pub fn actors(&self) -> Vec<ActorStats> {
        let now = self.context.now();
        self.context.directory.slots().map(|slot| slot.actor_stats(now)).collect()
    }

    /// The current epoch: it grows whenever the core starts over.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.context.ledger().epoch()
    }

    /// Breaks things on purpose.
    #[cfg(feature = "chaos")]
    #[must_use]
    pub fn chaos(&self) -> super::chaos::ChaosControl<'_> {
        super::chaos::ChaosControl { context: &self.context }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether the system can serve.
    #[must_use]
    pub fn health(&self) -> Health {
        let context = &self.context;
        let now = context.now();
        let is_core_alive = [
            context.directory.ledger.is_alive(),
            context.directory.kv_cache_manager.is_alive(),
            context.directory.structured_output.is_alive(),
            context.directory.scheduler.is_alive(),
            context.directory.worker.is_alive(),
        ];
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
        } else if is_stuck || !is_closed || is_core_alive.contains(&false) {
            Health::Recovering
        } else {
            Health::Ready
        }
    }

    /// Requests accepted whose end was not delivered.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.context.ledger().num_open()
    }

    /// How things stand.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the scheduler is being replaced.
    pub async fn status(&self) -> Result<Status, RequestError> {
        let directory = &self.context.directory;
        let limit = self.context.config.call_timeout;
        let stats = directory.scheduler.call("stats", limit, SchedulerMessage::Stats).await;
        let scheduler = stats.map_err(unavailable)?;
        let restarts = directory.restarts();
        Ok(Status { open_requests: self.open_requests(), scheduler, restarts })
    }

    /// Forgets all cached prefixes. `false` when running requests hold blocks, unless those are to
    /// be preempted.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the core is being replaced.
    pub async fn reset_prefix_cache(&self, reset_running: bool) -> Result<bool, RequestError> {
        let limit = self.context.config.call_timeout;
        let reset = |reply| {
            let reset_running_requests = reset_running;
            SchedulerMessage::ResetPrefixCache { reset_running_requests, reply }
        };
        let scheduler = &self.context.directory.scheduler;
        scheduler.call("reset_prefix_cache", limit, reset).await.map_err(unavailable)
    }

    /// Holds back new requests, or all, or ends that, and a sleep.
    pub fn set_pause(&self, pause: PauseState) {
        // Without a condition, it is always set.
        let _ = self.set_pause_if(pause, |_| true);
    }

    /// The same where `holds` of how often it was set before; then how often it is set now.
    pub(crate) fn set_pause_if(
        &self,
        pause: PauseState,
        holds: impl FnOnce(u64) -> bool,
    ) -> Option<u64> {
        let number = self.context.ground.hold.set_if(pause, holds)?;
        self.context.directory.scheduler.cast(SchedulerMessage::PauseChanged);
        Some(number)
    }

    /// Takes no new requests from now on.
    pub fn begin_drain(&self) {
        self.door.begin_drain();
    }

    /// Takes no new requests and waits until all are done. `false` when some are left after `limit`.
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

    /// Aborts what is open and stops all actors, children before parents.
    pub async fn shutdown(&self) {
        self.begin_drain();
        let open = self.context.ledger().open_requests();
        if !open.is_empty() {
            self.abort(open);
            self.drain(Duration::from_secs(1)).await;
        }
        self.context.stop_watching();
        let limit = Duration::from_secs(10);
        // No answer means that the root has ended already.
        let _ = self.root.ask(SupervisorMessage::Shutdown, limit).await;
        let _ = self.root.cell().wait(Some(limit)).await;
        // The task ends right after the actor.
        while !self.root_task.is_finished() {
            tokio::task::yield_now().await;
        }
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("health", &self.health()).finish_non_exhaustive()
    }
}
