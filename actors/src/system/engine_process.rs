//! The front's knowledge of one engine's processes, which outlives each process and the actor that
//! watches it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::{predecessors::Predecessors, wait_for_spare::WaitForSpare};
use crate::{
    link::{
        EngineLauncher, LoadError, Loaded, Loading, Process,
        calls::Calls,
        frames::{Answer, Fault, Question, Status, ToEngine},
        outgoing::{NotSent, Outgoing},
        spare::Spare,
    },
    logic::{
        kv_cache::Adoption,
        request::{
            ids::{EngineIndex, Micros, Step, TokenId},
            lora::AdapterFingerprint,
        },
    },
    message::Edge,
    ports::AdapterCheckError,
};

/// Number of ends of processes that are remembered.
const ENDS_MAX: usize = 8;

/// Longest time of a check of an adapter.
const ADAPTER_LIMIT: Duration = Duration::from_secs(60);
/// Pause before the next look for a process.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The engine process as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineProcessView {
    /// The number of the running process. `None`: there is none, or it loads its model.
    pub pid: Option<u32>,
    /// Number of processes that had loaded their model, with the running one.
    pub num_starts: u64,
    /// Whether a spare process lives and has loaded its model.
    pub is_spare_ready: bool,
    /// How the last processes ended, the latest last, in words that follow "the engine process".
    pub ends: Vec<String>,
}

/// The processes of one engine, one after the other.
pub(crate) struct EngineProcess {
    engine: EngineIndex,
    /// Whether the core of the running process has started.
    is_serving: AtomicBool,
    /// Whether an operator lets the engine have no new requests.
    is_draining: AtomicBool,
    /// Whether the requests of the engine go on in others.
    is_left: AtomicBool,
    launcher: Arc<dyn EngineLauncher>,
    /// The process that was started before the system.
    first: Mutex<Option<Loaded>>,
    spare: Mutex<Option<Spare>>,
    wait: WaitForSpare,
    predecessors: Predecessors,
    line: RwLock<Option<Arc<Line>>>,
    state: Mutex<State>,
    is_watched: AtomicBool,
    /// Whether a step of the running process is late.
    is_late: AtomicBool,
    /// Last step that a process reported.
    last_step: AtomicU64,
    /// Token that ends each process in every step with a prompt that has it.
    poison: Mutex<Option<TokenId>>,
    /// Whether the next process resets its prefix cache, because there was none at the order.
    needs_reset: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    num_starts: u64,
    ends: VecDeque<String>,
    /// The counts of processes that have ended, and of the running one.
    past: Counts,
    running: Counts,
    step_time: Option<Micros>,
}

/// The counts of one process, or of several.
#[derive(Debug, Default, Clone)]
struct Counts {
    edges: Vec<u64>,
    hangs: [u64; 3],
    steps: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.edges.resize(self.edges.len().max(other.edges.len()), 0);
        self.edges.iter_mut().zip(&other.edges).for_each(|(sum, more)| *sum += more);
        self.hangs.iter_mut().zip(other.hangs).for_each(|(sum, more)| *sum += more);
    }
}

/// The link to a running process.
pub(crate) struct Line {
    pub(crate) link: Outgoing<ToEngine>,
    pub(crate) calls: Calls,
    process: Arc<dyn Process>,
}

impl Line {
    /// Returns the link to a process that has loaded its model.
    pub(crate) fn new(link: Outgoing<ToEngine>, process: Arc<dyn Process>) -> Self {
        Self { link, calls: Calls::new(), process }
    }

    /// Sends a question. `take` gets the answer, or is dropped if none comes.
    ///
    /// # Errors
    /// [`NotSent`] if the question is lost.
    pub(crate) fn ask(
        &self,
        question: Question,
        take: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<(), NotSent> {
        self.calls.ask(&self.link, question, take)
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("process", &self.process).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for EngineProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineProcess").field("view", &self.view()).finish_non_exhaustive()
    }
}

impl EngineProcess {
    /// Returns the knowledge of a process that has loaded its model. `launcher` starts its
    /// successors.
    pub(crate) fn new(
        engine: EngineIndex,
        launcher: Arc<dyn EngineLauncher>,
        first: Loaded,
    ) -> Self {
        Self::with_first(engine, launcher, Some(first))
    }

    fn with_first(
        engine: EngineIndex,
        launcher: Arc<dyn EngineLauncher>,
        first: Option<Loaded>,
    ) -> Self {
        Self {
            engine,
            is_serving: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            launcher,
            first: Mutex::new(first),
            spare: Mutex::new(None),
            wait: WaitForSpare::default(),
            predecessors: Predecessors::default(),
            line: RwLock::new(None),
            state: Mutex::default(),
            is_watched: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            last_step: AtomicU64::new(0),
            poison: Mutex::new(None),
            needs_reset: Arc::default(),
        }
    }

    /// Returns the engine.
    pub(crate) fn engine(&self) -> EngineIndex {
        self.engine
    }

    /// Returns whether the core of the running process has started.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::SeqCst)
    }

    /// Records that the core of the running process has started.
    pub(crate) fn core_started(&self) {
        self.is_serving.store(true, Ordering::SeqCst);
    }

    /// Returns whether a step of the running process is late.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Returns whether an operator lets the engine have no new requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Returns whether the requests of the engine go on in others, by order of an operator.
    fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Returns whether the requests of the engine go on in others, if those can take them: by order
    /// of an operator, or because it has no process that serves. They wait for a spare process that
    /// is ready.
    pub(crate) fn lets_requests_go(&self) -> bool {
        self.is_left() || !self.is_serving() && !self.wait.is_on()
    }

    /// Lets the engine have no new requests. This outlives its processes. `moves` says whether its
    /// requests go on in others.
    pub(crate) fn drain(&self, moves: bool) {
        self.is_draining.store(true, Ordering::Release);
        self.is_left.store(moves, Ordering::Release);
    }

    /// Lets the engine have new requests again.
    pub(crate) fn undrain(&self) {
        self.is_left.store(false, Ordering::Release);
        self.is_draining.store(false, Ordering::Release);
    }

    /// Returns a process that has loaded its model: the first one, the spare one, or a new one.
    /// `silence_max` is the time without a sign of life after which it is killed.
    ///
    /// # Errors
    /// [`LoadError`] if it does not load its model.
    pub(crate) async fn load(&self, silence_max: Duration) -> Result<Loaded, LoadError> {
        let first = self.first.lock().take();
        if let Some(first) = first {
            return Ok(first);
        }
        if self.predecessors.end().await {
            // The next one would run into the same limit.
            self.launcher.forget_kv_cache();
        }
        let spare = self.spare.lock().take();
        match spare {
            Some(spare) => spare.take().await,
            None => Loading::begin(&*self.launcher, silence_max)?.loaded(|_| ()).await,
        }
    }

    /// Begins to load a spare process, if there has to be one.
    pub(crate) fn keep_spare(&self, silence_max: Duration) {
        if self.launcher.keeps_spare() {
            let spare = Spare::begin(Arc::clone(&self.launcher), silence_max);
            *self.spare.lock() = Some(spare);
        }
    }

    /// Ends the spare process.
    pub(crate) fn drop_spare(&self) {
        drop(self.spare.lock().take());
    }

    /// Returns the part of the KV cache of earlier processes that the next one adopts, which is
    /// about to be attached.
    pub(crate) fn adoption(&self, line: &Line) -> Adoption {
        self.predecessors.succeed(&line.process)
    }

    /// Begins with a process that has loaded its model.
    pub(crate) fn attach(&self, line: &Arc<Line>) {
        self.state.lock().num_starts += 1;
        *self.line.write() = Some(Arc::clone(line));
    }

    /// Sets the token that ends each process in every step with a prompt that has it.
    pub(crate) fn set_poison(&self, token: Option<TokenId>) {
        *self.poison.lock() = token;
        self.send_poison();
    }

    /// Tells the running process of that token.
    pub(crate) fn send_poison(&self) {
        let poison = *self.poison.lock();
        // A process that is being started learns of it when it is attached.
        let _ = poison.map(|token| self.send(&ToEngine::Fault(Fault::Poison(token))));
    }

    /// Ends with a process. Questions to it have no answers.
    pub(crate) fn detach(&self) {
        // Before the engine counts as one without a process: its requests would go on in others.
        let spare = self.spare.lock().as_ref().map(Spare::readiness);
        let is_ready = spare.as_ref().is_some_and(|is_ready| is_ready.load(Ordering::Acquire));
        tracing::debug!(engine = %self.engine, is_ready, "the spare engine process is wanted");
        self.wait.begin(spare);
        self.is_serving.store(false, Ordering::SeqCst);
        self.is_late.store(false, Ordering::Relaxed);
        let line = self.line.write().take();
        if let Some(line) = line {
            line.calls.close();
        }
        let mut state = self.state.lock();
        let running = std::mem::take(&mut state.running);
        state.past.add(&running);
    }

    /// Records how a process ended.
    pub(crate) fn ended(&self, how: String) {
        let mut state = self.state.lock();
        if state.ends.len() == ENDS_MAX {
            state.ends.pop_front();
        }
        state.ends.push_back(how);
    }

    /// Takes over a process's report of itself. Returns the number of steps since the last report.
    pub(crate) fn report(&self, status: &Status) -> u64 {
        self.last_step.fetch_max(status.last_step.0, Ordering::Relaxed);
        self.is_late.store(status.is_late, Ordering::Relaxed);
        let mut state = self.state.lock();
        let new_steps = status.num_steps.saturating_sub(state.running.steps);
        let (edges, hangs, steps) = (status.edges.clone(), status.hangs, status.num_steps);
        state.running = Counts { edges, hangs, steps };
        state.step_time = status.step_time.or(state.step_time);
        new_steps
    }

    /// Returns the link to the running process.
    pub(crate) fn line(&self) -> Option<Arc<Line>> {
        self.line.read().clone()
    }

    /// Sends a frame to the running process, if there is one.
    ///
    /// # Errors
    /// [`NotSent`] if it is lost.
    pub(crate) fn send(&self, frame: &ToEngine) -> Result<(), NotSent> {
        self.line().ok_or(NotSent::Down)?.link.send(frame)
    }

    /// Asks the running process. `None`: it does not answer in time.
    pub(crate) async fn ask(&self, question: Question, limit: Duration) -> Option<Answer> {
        let (sender, answer) = tokio::sync::oneshot::channel();
        let take = move |answer| drop(sender.send(answer));
        self.line()?.ask(question, take).ok()?;
        tokio::time::timeout(limit, answer).await.ok()?.ok()
    }

    /// Lets the running process read and check the adapter in the folder `path`. Waits for the next
    /// process if there is none. `None`: no answer came in time, or two processes ended over it.
    pub(crate) async fn check_adapter(
        &self,
        path: &str,
    ) -> Option<Result<AdapterFingerprint, AdapterCheckError>> {
        let give_up = Instant::now() + ADAPTER_LIMIT;
        let mut num_asked = 0;
        while num_asked < 2 && Instant::now() < give_up {
            let (sender, answer) = tokio::sync::oneshot::channel();
            let question = Question::CheckAdapter(path.to_owned());
            let take = move |answer| drop(sender.send(answer));
            // A link may be broken before the end of its process is known.
            if self.line().is_none_or(|line| line.ask(question, take).is_err()) {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            num_asked += 1;
            match tokio::time::timeout_at(give_up, answer).await {
                Ok(Ok(Answer::Adapter(checked))) => return Some(checked),
                // A panic. Another process would panic, too.
                Ok(Ok(_)) => return None,
                Ok(Err(_)) | Err(_) => {}
            }
        }
        None
    }

    /// Lets the next process reset its prefix cache: it adopts the content of those before.
    pub(crate) fn reset_later(&self) {
        self.needs_reset.store(true, Ordering::SeqCst);
    }

    /// Does the same after a reset, if the running process has a KV cache of its own: the next one
    /// may adopt the other.
    pub(crate) fn was_reset(&self) {
        if self.predecessors.is_apart() {
            self.reset_later();
        }
    }

    /// Lets the process on `line`, whose core has started, reset its prefix cache if it must. If
    /// the process does not do it, the next one is asked.
    pub(crate) fn reset_if_needed(&self, line: &Line) {
        if self.needs_reset.load(Ordering::SeqCst) {
            let needs_reset = Arc::clone(&self.needs_reset);
            let question = Question::ResetPrefixCache { reset_running_requests: true };
            let _ = line.ask(question, move |answer| {
                if matches!(answer, Answer::WasReset(true)) {
                    needs_reset.store(false, Ordering::SeqCst);
                }
            });
        }
    }

    /// Sets whether an observer looks at the steps.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
        // A process that is being started learns of it when it is attached.
        let _ = self.send(&ToEngine::Watch(is_watched));
    }

    /// Returns whether an observer looks at the steps.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Returns the last step that a process reported.
    pub(crate) fn last_step(&self) -> Step {
        Step(self.last_step.load(Ordering::Relaxed))
    }

    /// Returns the predicted time of a step of one token.
    pub(crate) fn step_time(&self) -> Option<Micros> {
        self.state.lock().step_time
    }

    /// Returns the number of messages that processes handled, by the edges' numbers.
    pub(crate) fn num_messages(&self, edge: Edge) -> u64 {
        let state = self.state.lock();
        let count = |counts: &Counts| counts.edges.get(edge.number()).copied().unwrap_or(0);
        count(&state.past) + count(&state.running)
    }

    /// Returns the hangs in processes: actors, those of them that chaos did not order, and steps.
    pub(crate) fn hangs(&self) -> [u64; 3] {
        let state = self.state.lock();
        let mut sum = state.past.clone();
        sum.add(&state.running);
        sum.hangs
    }

    /// Returns the process as an operator sees it.
    pub(crate) fn view(&self) -> EngineProcessView {
        let pid = self.line().map(|line| line.process.id());
        let is_spare_ready = self.spare.lock().as_ref().is_some_and(Spare::is_ready);
        let state = self.state.lock();
        let ends = state.ends.iter().cloned().collect();
        EngineProcessView { pid, num_starts: state.num_starts, is_spare_ready, ends }
    }
}

#[cfg(test)]
mod tests;
