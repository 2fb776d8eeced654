//! The actor that watches an engine process, in the place of its core's supervisor. It lives as
//! long as its process: its supervisor replaces both.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use crate::{
    fault::{Bug, planted},
    link::{
        LoadError,
        frames::{Attach, Question, Status, ToEngine, ToFront},
        parts::Gathered,
        peer::{News, Peer},
    },
    logic::{
        recovery::{
            in_flight::{SideWork, StepsInFlight},
            message_numbers::Stamp,
        },
        request::{
            EngineRequest,
            outputs::{Commit, StepReport},
        },
        scheduler::PauseState,
    },
    message::{LedgerMessage, Letter, Role, StepFailure, SupervisorMessage},
    supervision::{
        address::Carrier,
        slot::{AnySlot, Slot},
    },
    system::{
        carriers::ToCore,
        context::Context,
        engine_process::{EngineProcess, Line},
    },
};

/// The actor that watches an engine process.
#[derive(Debug)]
pub struct EngineProcessActor {
    /// Weak, because the tree of a context that was dropped must not keep it.
    context: Weak<Context>,
    process: Arc<EngineProcess>,
}

/// The task that serves the link. Its end kills the process.
#[derive(Debug)]
pub struct State {
    link: Task,
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

/// Stops the actor at the end of its task, also after a panic. A second stop has no effect.
struct StopAtEnd(ActorRef<SupervisorMessage>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop(Some("the task of the link ended".to_owned()));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl EngineProcessActor {
    /// Returns an actor that watches one process of the context's.
    pub(crate) fn new(context: Weak<Context>, process: Arc<EngineProcess>) -> Self {
        Self { context, process }
    }
}

impl Actor for EngineProcessActor {
    type Msg = SupervisorMessage;
    type State = State;
    type Arguments = ();

    /// Loading the model takes long, so the task does it.
    async fn pre_start(
        &self,
        myself: ActorRef<SupervisorMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        let context = self.context.upgrade().ok_or("the system is gone")?;
        let process = Arc::clone(&self.process);
        let link = tokio::spawn(async move {
            let myself = StopAtEnd(myself);
            let end = run(&context, &process).await;
            if !context.is_stopped() {
                tracing::warn!("the engine process {end}");
            }
            process.ended(end.clone());
            myself.0.stop(Some(format!("the engine process {end}")));
        });
        Ok(State { link: Task(link) })
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Shutdown(reply) => {
                // The core has no state of its own, so its process need not end by itself.
                state.link.0.abort();
                self.process.drop_spare();
                let _ = reply.send(());
                myself.stop(None);
            }
            SupervisorMessage::Restart { .. }
            | SupervisorMessage::Abandon(_)
            | SupervisorMessage::Ping => {}
        }
        Ok(())
    }
}

/// Runs one process to its end. Returns its end, in words that follow "the engine process".
async fn run(context: &Arc<Context>, process: &Arc<EngineProcess>) -> String {
    match process.load(context.config.hang_timeout).await {
        Ok(loaded) => serve(context, process, loaded.peer).await,
        Err(LoadError::Refused(why)) => format!("could not load the model: {why}"),
        Err(LoadError::Ended(how)) => how,
    }
}

/// Keeps the process attached while this value lives.
struct Attached<'a> {
    context: &'a Context,
    process: &'a EngineProcess,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.process.detach();
        if self.context.part.front().is_some_and(|engines| engines.are_several()) {
            self.context.observers.engine_ended(self.process.engine());
            // Its requests go on in other engines, unless its spare process is ready.
            self.context.directory.ledger.receive(LedgerMessage::CoreEnded);
        }
    }
}

/// Serves the link of a process that has loaded its model. Returns its end.
async fn serve(context: &Arc<Context>, process: &EngineProcess, mut peer: Peer) -> String {
    let line = Arc::new(Line::new(peer.outgoing().clone(), Arc::clone(peer.process())));
    process.attach(&line);
    let _attached = Attached { context, process };
    let told = (context.ground.hold.number(), context.ground.hold.in_force());
    let attach = Attach {
        now: context.now(),
        last_step: process.last_step(),
        pause: told.1,
        is_watched: process.is_watched(),
        adoption: process.adoption(&line),
    };
    // A link that is down is noticed below.
    let _ = line.link.send(&ToEngine::Attach(attach));
    process.send_poison();
    if context.ground.hold.is_asleep() {
        let _ = line.ask(Question::ReleaseKvCache, drop);
    }
    tracing::info!(pid = peer.process().id(), "an engine process serves");
    let (commits, steps) = (Gathered::new(), StepsInFlight::default());
    let (has_started, works) = (false, BTreeMap::new());
    let mut session = Session { context, process, line, has_started, told, commits, steps, works };
    loop {
        match peer.next().await {
            Ok(News::Frame(frame)) => session.on_frame(frame),
            Ok(News::Nothing) => session.look(),
            Err(end) => {
                if end.is_by_step {
                    session.blame(&end.how);
                }
                return end.how;
            }
        }
    }
}

/// The conversation with one process.
struct Session<'a> {
    context: &'a Arc<Context>,
    process: &'a EngineProcess,
    line: Arc<Line>,
    /// Whether its actors have started.
    has_started: bool,
    /// The number of pauses and resumptions, and the pause in force, when it was told last.
    told: (u64, PauseState),
    /// The commits of a report that is about to come.
    commits: Gathered<Stamp, Commit>,
    /// The steps that it computes.
    steps: StepsInFlight,
    /// Its work beside the steps.
    works: BTreeMap<u64, SideWork>,
}

impl Session<'_> {
    fn on_frame(&mut self, frame: ToFront) {
        let message = match frame {
            ToFront::Report(stamp, report) => LedgerMessage::Report(stamp, report),
            ToFront::Commits(stamp, part) => return self.commits.add(stamp, part),
            ToFront::ReportOf { stamp, report, num_commits } => {
                let Some(commits) = self.commits.take(&stamp, num_commits) else {
                    // The ledger learns from the scheduler's next word that it misses a report.
                    tracing::warn!("a part of a report was lost");
                    return;
                };
                LedgerMessage::Report(stamp, StepReport { commits, ..report })
            }
            ToFront::Reported(stamp) => LedgerMessage::Reported(stamp),
            ToFront::Lost { epoch, what } => LedgerMessage::Lost { epoch, what },
            ToFront::StepGiven { epoch, step, requests } => {
                return self.steps.given(epoch, step, requests);
            }
            ToFront::StepDone { epoch, step } => return self.steps.done(epoch, step),
            ToFront::WorkGiven(number, work) => return drop(self.works.insert(number, work)),
            ToFront::WorkDone(number) => return drop(self.works.remove(&number)),
            ToFront::StepFailed { epoch, requests, failure } => {
                self.steps.failed();
                LedgerMessage::StepFailed { epoch, requests, failure }
            }
            ToFront::CoreStarted(status) => {
                // An actor that died reports no end of its work.
                self.works.clear();
                self.core_started(&status);
                LedgerMessage::CoreStarted
            }
            ToFront::Beat(Some(status)) => return self.on_beat(&status),
            ToFront::Observed(observation) => {
                return self.context.observers.observed(self.process.engine(), &observation);
            }
            ToFront::Answer(number, answer) => return self.line.calls.answer(number, answer),
            // Of the load, which is over.
            ToFront::Beat(None) | ToFront::Loading(_) | ToFront::Ready(_) | ToFront::Failed(_) => {
                return;
            }
        };
        self.context.directory.ledger.receive(message);
    }

    /// Learns of new actors before the ledger does: it compares their number.
    fn core_started(&mut self, status: &Status) {
        if !self.has_started {
            self.has_started = true;
            if let Some(core) = self.context.directory.core_of(self.process.engine()) {
                self.seat(&core.kv_cache_manager, status);
                self.seat(&core.structured_output, status);
                self.seat(&core.encoder_cache_manager, status);
                self.seat(&core.scheduler, status);
                self.seat(&core.worker, status);
                self.seat(&core.encoder_worker, status);
            }
            self.process.core_started();
            self.process.reset_if_needed(&self.line);
            // Not before: its load must not delay the core.
            self.process.keep_spare(self.context.config.hang_timeout);
        }
        self.on_status(status);
    }

    /// Takes a sign of life. If the message that the core has started was lost, this shows it.
    fn on_beat(&mut self, status: &Status) {
        if !self.has_started && status.actors.iter().all(|actor| actor.is_alive) {
            self.core_started(status);
            self.context.directory.ledger.receive(LedgerMessage::CoreStarted);
        } else {
            self.on_status(status);
        }
    }

    fn seat<M: Letter>(&self, slot: &Slot<M>, status: &Status)
    where
        ToCore: Carrier<M>,
    {
        if planted(Bug::KeepOldLine) && slot.get().is_some() {
            return;
        }
        if let Some(stats) = status.actors.iter().find(|stats| stats.role == slot.role()) {
            let (line, context) = (Arc::clone(&self.line), Arc::downgrade(self.context));
            slot.set_elsewhere(Arc::new(ToCore { line, context }), stats.clone());
        }
    }

    fn on_status(&self, status: &Status) {
        if !self.has_started {
            return;
        }
        let (directory, progress) = (&self.context.directory, &self.context.observers.progress);
        let Some(core) = directory.core_of(self.process.engine()) else { return };
        for stats in &status.actors {
            match stats.role {
                Role::KvCacheManager => core.kv_cache_manager.report(stats),
                Role::StructuredOutput => core.structured_output.report(stats),
                Role::EncoderCacheManager => core.encoder_cache_manager.report(stats),
                Role::Scheduler => core.scheduler.report(stats),
                Role::Worker => core.worker.report(stats),
                Role::EncoderWorker => core.encoder_worker.report(stats),
                _ => {}
            }
        }
        let new_steps = self.process.report(status);
        let are_late = self.context.part.front().is_some_and(|engines| engines.are_late());
        progress.report(new_steps, are_late);
        if status.has_begun {
            progress.begin();
        }
    }

    /// Reports the steps in flight, and the work beside them, as a failed step, because the process
    /// ended within them. So a request that ends every process is found as one that makes every
    /// step fail. Work beside the steps counts only from the second end within it on.
    fn blame(&self, end: &str) {
        let needs = |request: &EngineRequest| self.works.values().any(|work| work.is_for(request));
        let ledger = self.context.ledger();
        let (epoch, beside) = ledger.suspects_beside(self.process.engine(), needs);
        let beside = self.context.part.front().map_or_else(Vec::new, |engines| {
            engines.needed_again(&beside, |request| ledger.is_live(request))
        });
        let Some((epoch, requests)) = self.steps.suspects_with(epoch, beside) else { return };
        if planted(Bug::BlameNothing) {
            return;
        }
        let failure = StepFailure::ProcessEnded(end.to_owned());
        let failed = LedgerMessage::StepFailed { epoch, requests, failure };
        self.context.directory.ledger.receive(failed);
    }

    /// Repeats the pause if the message about it was lost.
    fn look(&mut self) {
        let hold = &self.context.ground.hold;
        // The number, too: a pause may begin and end between two looks, and only its end be lost.
        let told = (hold.number(), hold.in_force());
        if std::mem::replace(&mut self.told, told) != told && !planted(Bug::TellPauseOnce) {
            let _ = self.line.link.send(&ToEngine::Pause(told.1));
        }
    }
}
