//! The engine process's end of a link: it loads the model by order of the front, runs the core's
//! actors, and ends with the front.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use ractor::ActorRef;
use tokio::{
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval, sleep},
};

use super::{
    carriers::ToLedger,
    config::{DeviceMode, SystemConfig},
    context::Context,
    part::Part,
    status::status,
    tree,
    uplink::Uplink,
};
use crate::{
    error::ActorError,
    link::{
        frames::{Answer, Attach, Question, ToEngine, ToFront},
        incoming::{Incoming, LinkError, Reader},
        outgoing::{Outgoing, Writer},
        parts::Gathered,
    },
    logic::{
        ledger::Restriction,
        recovery::message_numbers::Stamp,
        request::{
            EngineRequest,
            ids::{Epoch, RequestId},
        },
        scheduler::{PauseState, RecoveredRequest},
    },
    message::{
        EncoderCacheManagerMessage, KvCacheManagerMessage, SchedulerMessage, SchedulerOrder,
        SupervisorMessage,
    },
    ports::{AdapterCheckError, ExecutorFactory, GrammarCompiler, TextCodec},
    supervision::{address::Address, watchdog},
};
use crate::{fault::Chaos, link::frames::Fault, message::Edge};

/// Time between two signs of life.
const BEAT_PERIOD: Duration = Duration::from_millis(50);

/// Time after which a process that has not been attached counts as a spare one. It then does work
/// for which streams would wait. Not before, because others may catch up with steps that were lost.
const SPARE_AFTER: Duration = Duration::from_secs(3);

/// The loaded parts of an engine process.
pub struct Core {
    /// The actors' settings.
    pub config: SystemConfig,
    /// Creates executors.
    pub executors: Arc<dyn ExecutorFactory>,
    /// The text side, by which grammars know the vocabulary.
    pub codec: Arc<dyn TextCodec>,
    /// Compiles grammars.
    pub grammars: Arc<dyn GrammarCompiler>,
}

/// The reason why an engine process ends.
#[derive(Debug, thiserror::Error)]
pub enum EngineOver {
    /// The front is gone, or the link to it is broken.
    #[error("the front is gone: {0}")]
    Front(#[from] LinkError),
    /// The supervisors gave up.
    #[error("the supervisors gave up")]
    GaveUp,
    /// The actors could not be started.
    #[error(transparent)]
    Actors(#[from] ActorError),
}

/// The engine process's end of a link.
pub struct EngineEnd {
    incoming: Incoming<ToEngine>,
    outgoing: Outgoing<ToFront>,
    beats: Interval,
    begin: Option<Begin>,
}

/// Gets the source of faults of the core before its actors start.
type Begin = Box<dyn FnOnce(&Chaos) + Send>;

impl std::fmt::Debug for EngineEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineEnd").finish_non_exhaustive()
    }
}

impl EngineEnd {
    /// Returns the end of a link over two byte streams. Must be called within a tokio runtime.
    #[must_use]
    pub fn new(reader: Reader, writer: Writer) -> Self {
        let (outgoing, queue) = Outgoing::new();
        drop(tokio::spawn(async move {
            // The reader finds a broken link too.
            let _ = queue.write(writer).await;
        }));
        let mut beats = interval(BEAT_PERIOD);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { incoming: Incoming::new(reader), outgoing, beats, begin: None }
    }

    /// Lets `begin` observe the core, or plan its faults, before the core's actors start.
    pub fn set_begin(&mut self, begin: impl FnOnce(&Chaos) + Send + 'static) {
        self.begin = Some(Box::new(begin));
    }

    /// Waits for the settings.
    ///
    /// # Errors
    /// [`LinkError`] if the front is gone.
    pub async fn settings(&mut self) -> Result<Vec<u8>, LinkError> {
        loop {
            if let ToEngine::Load(settings) = self.incoming.next().await? {
                return Ok(settings);
            }
        }
    }

    /// Returns the function that reports the progress of the load.
    pub fn progress(&self) -> impl FnMut(Vec<u8>) + Send + 'static + use<> {
        let outgoing = self.outgoing.clone();
        // A front that misses a report of progress gets the next one.
        move |report| {
            let _ = outgoing.send(&ToFront::Loading(report));
        }
    }

    /// Gives signs of life until the load ends.
    ///
    /// # Errors
    /// [`LinkError`] if the front is gone.
    pub async fn while_loading<T>(
        &mut self,
        load: impl Future<Output = T>,
    ) -> Result<T, LinkError> {
        let mut load = std::pin::pin!(load);
        loop {
            tokio::select! {
                biased;
                loaded = &mut load => return Ok(loaded),
                _ = self.beats.tick() => self.beat(),
                // The front says nothing until the model is loaded.
                frame = self.incoming.next() => drop(frame?),
            }
        }
    }

    /// Reports that the model could not be loaded.
    pub async fn failed(self, why: String) {
        let _ = self.outgoing.send(&ToFront::Failed(why));
        let Self { mut incoming, .. } = self;
        // The front closes the link when it has read the reason.
        while incoming.next().await.is_ok() {}
    }

    /// Reports that the model is loaded, with the facts about it. Runs the core's actors once the
    /// front asks for them.
    ///
    /// # Errors
    /// [`EngineOver`] is the only way to end.
    pub async fn serve(mut self, facts: Vec<u8>, core: Core) -> EngineOver {
        let _ = self.outgoing.send(&ToFront::Ready(facts));
        let mut waited = std::pin::pin!(sleep(SPARE_AFTER));
        // In simulated time there is no such work.
        let mut is_prepared = !matches!(core.config.device, DeviceMode::Thread);
        loop {
            tokio::select! {
                biased;
                _ = self.beats.tick() => self.beat(),
                frame = self.incoming.next() => match frame {
                    Ok(ToEngine::Attach(attach)) => return self.attached(attach, core).await,
                    Ok(_) => {}
                    Err(error) => return error.into(),
                },
                () = &mut waited, if !is_prepared => {
                    is_prepared = true;
                    let grammars = Arc::clone(&core.grammars);
                    drop(tokio::task::spawn_blocking(move || grammars.prepare()));
                }
            }
        }
    }

    fn beat(&self) {
        let _ = self.outgoing.send(&ToFront::Beat(None));
    }

    async fn attached(self, attach: Attach, core: Core) -> EngineOver {
        let recorder = core.config.recorder.clone();
        let over = match Running::start(self.outgoing, attach, core, self.begin).await {
            Ok(running) => running.serve(self.incoming, self.beats).await,
            Err(error) => error.into(),
        };
        if let Some(recorder) = recorder {
            recorder.close().await;
        }
        over
    }
}

/// The core's actors and the link to the front.
struct Running {
    context: Arc<Context>,
    uplink: Arc<Uplink>,
    root: ActorRef<SupervisorMessage>,
    root_task: JoinHandle<()>,
    /// The live requests of an epoch that is about to begin.
    live: Gathered<Epoch, RecoveredRequest>,
    /// The requests of an order that is about to come.
    added: Gathered<Stamp, Arc<EngineRequest>>,
    /// The last work on the memory of the KV cache.
    memory_work: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.stop_watching();
        // Its children end with it.
        self.root.kill();
    }
}

impl Running {
    async fn start(
        outgoing: Outgoing<ToFront>,
        attach: Attach,
        core: Core,
        begin: Option<Begin>,
    ) -> Result<Self, ActorError> {
        let Core { config, executors, codec, grammars } = core;
        let uplink = Arc::new(Uplink::new(outgoing));
        let part = Part::Engine(Arc::clone(&uplink));
        let context = Context::of_part(part, attach.now, config, executors, codec, grammars);
        let context = Arc::new(context);
        if let Some(begin) = begin {
            begin(&context.observers.chaos);
        }
        context.ground.planned(attach.last_step);
        context.observers.steps.set_watched(attach.is_watched);
        context.vault.keep_blocks(&context.config, attach.adoption);
        let ledger = Address::Link(Arc::new(ToLedger(Arc::downgrade(&context))));
        context.directory.ledger.set(ledger, Arc::default());
        let (root, root_task) = tree::spawn(&context)
            .await
            .map_err(|error| ActorError::Invariant(format!("the tree did not start: {error}")))?;
        watchdog::spawn(&context)
            .map_err(|error| ActorError::Invariant(format!("no watchdog: {error}")))?;
        let (live, added) = (Gathered::new(), Gathered::new());
        let running = Self { context, uplink, root, root_task, live, added, memory_work: None };
        running.pause(attach.pause);
        Ok(running)
    }

    async fn serve(mut self, mut incoming: Incoming<ToEngine>, mut beats: Interval) -> EngineOver {
        loop {
            tokio::select! {
                biased;
                // Before the frames: a front that recovers sends many, and needs signs of life.
                _ = beats.tick() => {
                    let _ = self.uplink.send(&ToFront::Beat(Some(status(&self.context))));
                }
                frame = incoming.next() => match frame {
                    Ok(frame) => self.on_frame(frame),
                    Err(error) => return error.into(),
                },
                _ = &mut self.root_task => return EngineOver::GaveUp,
            }
        }
    }

    fn on_frame(&mut self, frame: ToEngine) {
        let scheduler = &self.context.directory.core.scheduler;
        match frame {
            ToEngine::Order(stamp, order) => {
                if let SchedulerOrder::Abort(requests) = &order {
                    self.uplink.forget(requests);
                }
                scheduler.receive(SchedulerMessage::Order(stamp, order));
            }
            ToEngine::Given(stamp) => scheduler.receive(SchedulerMessage::Given(stamp)),
            ToEngine::Added(stamp, part) => self.added.add(stamp, part),
            ToEngine::Add { stamp, num_requests } => match self.added.take(&stamp, num_requests) {
                Some(requests) => {
                    let add = SchedulerOrder::Add(requests);
                    scheduler.receive(SchedulerMessage::Order(stamp, add));
                }
                // The scheduler learns from the ledger's next word that it misses an order.
                None => tracing::warn!("a part of an order was lost"),
            },
            ToEngine::Live(epoch, part) => self.live.add(epoch, part),
            ToEngine::Recover { epoch, num_live, newcomers, restriction } => {
                self.recover(epoch, num_live, newcomers, restriction);
            }
            ToEngine::Pause(pause) => self.pause(pause),
            ToEngine::Rest => self.context.observers.progress.rest(),
            ToEngine::Watch(is_watched) => self.context.observers.steps.set_watched(is_watched),
            ToEngine::Ask(number, question) => self.ask(number, question),
            ToEngine::Fault(fault) => self.fault(fault),
            // Of the start, which is over.
            ToEngine::Load(_) | ToEngine::Attach(_) => {}
        }
    }

    fn recover(
        &mut self,
        epoch: Epoch,
        num_live: usize,
        newcomers: BTreeSet<RequestId>,
        restriction: Restriction,
    ) {
        let Some(live) = self.live.take(&epoch, num_live) else {
            // The scheduler learns from the ledger's next word that it misses an epoch.
            tracing::warn!(epoch = epoch.0, "a part of the live requests was lost");
            return;
        };
        self.uplink.begin_epoch(epoch, &live, &newcomers);
        let recover = SchedulerMessage::Recover { epoch, live, newcomers, restriction };
        self.context.directory.core.scheduler.receive(recover);
    }

    fn pause(&self, pause: PauseState) {
        // Without a condition, the pause is always set.
        let _ = self.context.ground.hold.set_if(pause, |_| true);
        self.context.directory.core.scheduler.receive(SchedulerMessage::PauseChanged);
    }

    /// Answers a question when the actor that knows the answer has given it. Work on the memory of
    /// the KV cache keeps its order: a release that comes after a restoration frees blocks in use.
    fn ask(&mut self, number: u64, question: Question) {
        let (context, uplink) = (Arc::clone(&self.context), Arc::clone(&self.uplink));
        let is_memory = matches!(question, Question::ReleaseKvCache | Question::RestoreKvCache);
        let before = if is_memory { self.memory_work.take() } else { None };
        let work = tokio::spawn(async move {
            if let Some(before) = before {
                // A panic has ended it, too.
                let _ = before.await;
            }
            let answer = answer(&context, question).await.unwrap_or(Answer::NoAnswer);
            // A front that is gone needs no answer.
            let _ = uplink.send(&ToFront::Answer(number, answer));
        });
        if is_memory {
            self.memory_work = Some(work);
        }
    }

    fn fault(&self, fault: Fault) {
        use super::chaos::ChaosControl;
        let chaos = ChaosControl { context: &self.context };
        match fault {
            Fault::Strike(role, index, how) => {
                if let Err(error) = chaos.strike(role, index, how) {
                    tracing::warn!(%error, "no actor was struck");
                }
            }
            Fault::Edge(name, faults) => {
                if let Ok(edge) = name.parse::<Edge>() {
                    chaos.set_edge(edge, faults);
                }
            }
            Fault::Calm => chaos.calm(),
            Fault::Exit(code) => std::process::exit(code),
            Fault::Garbage => self.uplink.send_garbage(),
            Fault::Wedge => wedge(),
            Fault::Poison(token) => self.context.observers.chaos.set_poison(token),
        }
    }
}

/// Blocks every thread of the runtime for ever.
fn wedge() {
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    for _ in 0..4 * workers {
        drop(tokio::spawn(async {
            loop {
                std::thread::park();
            }
        }));
    }
    std::thread::park();
}

/// Returns the answer to a question, if the actor that knows it answers in time.
async fn answer(context: &Arc<Context>, question: Question) -> Option<Answer> {
    let (directory, limit) = (&context.directory, context.config.call_timeout);
    let scheduler = &directory.core.scheduler;
    Some(match question {
        Question::Stats => {
            Answer::Stats(scheduler.call("stats", limit, SchedulerMessage::Stats).await.ok()?)
        }
        Question::View { most } => {
            let view = |reply| SchedulerMessage::View { most, reply };
            Answer::View(scheduler.call("view", limit, view).await.ok()?)
        }
        Question::EncoderCache => {
            let manager = &directory.core.encoder_cache_manager;
            let view = EncoderCacheManagerMessage::View;
            Answer::EncoderCache(manager.call("view", limit, view).await.ok()?)
        }
        Question::ResetEncoderCache => {
            let manager = &directory.core.encoder_cache_manager;
            manager.call("reset", limit, EncoderCacheManagerMessage::Reset).await.ok()?;
            Answer::EncoderCacheWasReset
        }
        Question::BlockMap => {
            let (manager, view) = (&directory.core.kv_cache_manager, KvCacheManagerMessage::View);
            Answer::BlockMap(manager.call("view", limit, view).await.ok()?)
        }
        Question::ResetPrefixCache { reset_running_requests } => {
            let reset =
                |reply| SchedulerMessage::ResetPrefixCache { reset_running_requests, reply };
            Answer::WasReset(scheduler.call("reset_prefix_cache", limit, reset).await.ok()?)
        }
        Question::Timelines => Answer::Timelines(context.observers.steps.timelines()),
        Question::ReleaseKvCache | Question::RestoreKvCache => {
            let executors = Arc::clone(&context.vault.executors);
            let work = move || match question {
                Question::ReleaseKvCache => executors.release_kv_cache(),
                _ => executors.restore_kv_cache(),
            };
            // Gigabytes take a while.
            Answer::Memory(tokio::task::spawn_blocking(work).await.ok()?)
        }
        Question::CheckAdapter(path) => {
            let executors = Arc::clone(&context.vault.executors);
            let check = move || match executors.adapters() {
                Some(adapters) => adapters.check(&path),
                None => Err(AdapterCheckError::Refused("adapters are not enabled".to_owned())),
            };
            Answer::Adapter(tokio::task::spawn_blocking(check).await.ok()?)
        }
    })
}
