//! One running actor system: its door, its health, its end.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ractor::ActorRef;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    config::SystemConfig,
    context::Context,
    directory::{ActorStats, Directory, Slot},
    sink::{Abandon, ChoiceStream},
    tree, watchdog,
};
use crate::{
    error::{ActorError, RequestError},
    logic::{
        ids::{Epoch, RequestId, TokenId},
        request::EngineRequest,
        scheduler::{PauseState, SchedulerConfigError, SchedulerStats},
        seed::choice_seed,
    },
    message::{
        InputProcessorMessage, LedgerMessage, SchedulerMessage, SupervisorMessage,
        input_processor::{ProcessedRequest, RawRequest},
    },
    ports::{ExecutorFactory, TextCodec},
};

/// How often a job is given to another input processor when one dies over it.
const INPUT_RETRIES: usize = 2;
/// How long the door waits before it looks for a restarted actor again.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A running actor system. Dropping it does not stop it: see [`System::shutdown`].
pub struct System {
    context: Arc<Context>,
    root: ActorRef<SupervisorMessage>,
    root_task: JoinHandle<()>,
    door: Arc<Door>,
}

/// What clients' streams hold on to, weakly: how to tell that they left.
struct Door {
    context: Arc<Context>,
    next_request: AtomicU64,
    next_input: AtomicU64,
    seed: u64,
    is_draining: AtomicBool,
}

impl Abandon for Door {
    fn abandon(&self, request: RequestId) {
        self.context.sinks.close(request);
        let is_open = self.context.ledger.lock().get(request).is_some_and(|e| e.end().is_none());
        if is_open {
            self.context.directory.ledger.cast(LedgerMessage::Abort(vec![request]));
        }
    }
}

/// An accepted request: its prompt and a stream for each choice.
#[derive(Debug)]
pub struct Submission {
    /// The prompt as the model sees it.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// One for each of `n`.
    pub choices: Vec<ChoiceStream>,
}

/// Whether the system can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    Ready,
    /// It finishes what it has and takes nothing new.
    Draining,
    /// The supervisors gave up, or it was shut down.
    Dead,
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
    /// Starts the actors over a loaded model. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ActorError`] when the scheduler's settings are invalid or an actor could not be started.
    pub async fn spawn(
        config: SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
        seed: u64,
    ) -> Result<Self, ActorError> {
        let invalid = |error: SchedulerConfigError| ActorError::Invariant(error.to_string());
        config.scheduler.validate().map_err(invalid)?;
        let context = Arc::new(Context::new(config, executors, codec));
        let (root, root_task) = tree::spawn(&context)
            .await
            .map_err(|error| ActorError::Invariant(format!("the tree did not start: {error}")))?;
        watchdog::spawn(&context)
            .map_err(|error| ActorError::Invariant(format!("no watchdog: {error}")))?;
        let door = Arc::new(Door {
            context: Arc::clone(&context),
            next_request: AtomicU64::new(0),
            next_input: AtomicU64::new(0),
            seed,
            is_draining: AtomicBool::new(false),
        });
        Ok(Self { context, root, root_task, door })
    }

    /// Accepts a request, whatever actor dies meanwhile.
    ///
    /// # Errors
    /// [`RequestError`] says what is wrong with it, or that the engine is full or draining.
    pub async fn submit(&self, raw: RawRequest) -> Result<Submission, RequestError> {
        if self.door.is_draining.load(Ordering::Acquire) {
            return Err(RequestError::Draining);
        }
        let raw = Arc::new(raw);
        let processed = self.process(&raw).await?;
        let prompt_token_ids = Arc::clone(&processed.prompt_token_ids);
        let requests = self.requests(&raw, processed);
        let choices = requests.iter().map(|request| self.open(request.id)).collect();
        self.accept(requests).await?;
        Ok(Submission { prompt_token_ids, choices })
    }

    /// A job that a processor dies over is given to another, twice; one that finds all processors
    /// dead waits until one is back.
    async fn process(&self, raw: &Arc<RawRequest>) -> Result<ProcessedRequest, RequestError> {
        let limit = self.context.config.input_timeout;
        let give_up = Instant::now() + self.context.config.call_timeout;
        let mut failures = 0;
        loop {
            let Some(processor) = self.live_input_processor() else {
                if Instant::now() >= give_up {
                    let cause = "no input processor is running".to_owned();
                    return Err(RequestError::Unavailable(cause));
                }
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            };
            let job = |reply| InputProcessorMessage::Process(Arc::clone(raw), reply);
            match processor.call("process", limit, job).await {
                Ok(processed) => return processed,
                Err(error) if failures == INPUT_RETRIES => return Err(unavailable(error)),
                Err(_) => failures += 1,
            }
        }
    }

    /// The next one whose turn it is among those that are alive.
    fn live_input_processor(&self) -> Option<&Slot<InputProcessorMessage>> {
        let processors = &self.context.directory.input_processors;
        let first = self.door.next_input.fetch_add(1, Ordering::Relaxed) as usize;
        let turns =
            (0..processors.len()).map(|turn| &processors[(first + turn) % processors.len()]);
        turns.into_iter().find(|processor| processor.is_alive())
    }

    fn requests(&self, raw: &RawRequest, processed: ProcessedRequest) -> Vec<Arc<EngineRequest>> {
        let ProcessedRequest { prompt_token_ids, mut params } = processed;
        let count = u64::from(params.n);
        let first = self.door.next_request.fetch_add(count, Ordering::Relaxed);
        let seed = params.seed.unwrap_or_else(|| choice_seed(self.door.seed, first));
        // As in vLLM: one token is the end of sequence, the model's others are stop tokens.
        let eos = &self.context.vault.executors.info().eos_token_ids;
        let eos_token_ids: Arc<[TokenId]> = eos.iter().take(1).copied().collect();
        if !params.ignore_eos {
            params.stop_token_ids.extend(eos.iter().skip(1));
        }
        let cache_salt: Option<Arc<str>> = raw.cache_salt.as_deref().map(Arc::from);
        let arrival = self.context.now();
        let request = |choice: u64| EngineRequest {
            id: RequestId(first + choice),
            prompt_token_ids: Arc::clone(&prompt_token_ids),
            params: params.clone(),
            seed: if count == 1 { seed } else { choice_seed(seed, choice) },
            eos_token_ids: Arc::clone(&eos_token_ids),
            arrival,
            priority: raw.priority,
            cache_salt: cache_salt.clone(),
            deadline: None,
            mm_features: [].into(),
        };
        (0..count).map(|choice| Arc::new(request(choice))).collect()
    }

    fn open(&self, request: RequestId) -> ChoiceStream {
        let sink = self.context.sinks.open(request);
        let door: Arc<dyn Abandon> = Arc::<Door>::clone(&self.door);
        let owner: Weak<dyn Abandon> = Arc::downgrade(&door);
        ChoiceStream::new(request, sink, owner)
    }

    /// The ledger's word is what counts: a call that it answered is permanent, one that it did not
    /// see is repeated to its successor.
    async fn accept(&self, requests: Vec<Arc<EngineRequest>>) -> Result<(), RequestError> {
        let limit = self.context.config.call_timeout;
        let give_up = Instant::now() + limit;
        loop {
            let ledger = &self.context.directory.ledger;
            let accept = |reply| LedgerMessage::Accept(requests.clone(), reply);
            let error = match ledger.call("accept", limit, accept).await {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            let first = requests.first().map(|request| request.id);
            let is_held = first.is_some_and(|id| self.context.ledger.lock().get(id).is_some());
            if is_held {
                return Ok(());
            }
            if Instant::now() >= give_up || self.root_task.is_finished() {
                return Err(RequestError::Unavailable(error.to_string()));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
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

    /// Clients whose streams were not dropped.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.context.sinks.len()
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
        self.context.ledger.lock().epoch()
    }

    /// Breaks things on purpose.
    #[cfg(feature = "chaos")]
    #[must_use]
    pub fn chaos(&self) -> super::chaos::ChaosControl<'_> {
        super::chaos::ChaosControl { system: self }
    }

    #[cfg(feature = "chaos")]
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether the system can serve.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.root_task.is_finished() {
            Health::Dead
        } else if self.door.is_draining.load(Ordering::Acquire) {
            Health::Draining
        } else {
            Health::Ready
        }
    }

    /// Requests accepted whose end was not delivered.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.context.ledger.lock().len()
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

    /// Holds back new requests, or all.
    pub fn set_pause(&self, pause: PauseState) {
        *self.context.pause.lock() = pause;
        self.context.directory.scheduler.cast(SchedulerMessage::PauseChanged);
    }

    /// Takes no new requests from now on.
    pub fn begin_drain(&self) {
        self.door.is_draining.store(true, Ordering::Release);
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
        let open: Vec<_> = self.context.ledger.lock().requests().collect();
        if !open.is_empty() {
            self.abort(open);
            self.drain(Duration::from_secs(1)).await;
        }
        self.context.is_stopped.store(true, Ordering::Release);
        let limit = Some(Duration::from_secs(10));
        // No answer means that the root has ended already.
        let _ = self.root.call(SupervisorMessage::Shutdown, limit).await;
        let _ = self.root.wait(limit).await;
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

fn unavailable(error: ActorError) -> RequestError {
    RequestError::Unavailable(error.to_string())
}
