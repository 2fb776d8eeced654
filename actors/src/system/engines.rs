//! The engines of one front, each in a process of its own. There is one, unless the settings ask
//! for more.

use std::sync::Arc;

use parking_lot::Mutex;

use super::engine_process::{EngineProcess, EngineProcessView};
use crate::{
    link::{
        EngineLauncher, Loaded,
        frames::{Fault, ToEngine},
    },
    logic::{
        recovery::in_flight::NeededAtEnds,
        request::{
            ids::{EngineIndex, Micros, RequestId, TokenId},
            lora::AdapterFingerprint,
        },
    },
    message::Edge,
    ports::AdapterCheckError,
};

/// The processes of all engines.
#[derive(Debug)]
pub(crate) struct Engines {
    first: Arc<EngineProcess>,
    others: Vec<Arc<EngineProcess>>,
    /// Held while an operator changes which engines get requests.
    drains: Mutex<()>,
    /// Of all engines, because the requests of one that ends go on in others.
    needed_at_ends: Mutex<NeededAtEnds>,
}

/// The start of an engine: a process that has loaded its model, and the launcher of its successors.
pub type EngineStart = (Arc<dyn EngineLauncher>, Loaded);

/// An engine as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineView {
    /// The place among the engines.
    pub engine: EngineIndex,
    /// The state.
    pub state: EngineState,
    /// Number of accepted requests that have not ended and that it has.
    pub num_requests: usize,
    /// Its process.
    pub process: EngineProcessView,
}

/// The state of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineState {
    /// It gets requests.
    Serving,
    /// It gets no new requests, and its last ones run.
    Draining,
    /// It gets no new requests, and has none.
    Drained,
    /// Its process is being replaced.
    Restarting,
}

/// The reason why an engine is not drained.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// There is no engine with this index.
    #[error("engine must be below {num_engines}, got {engine}")]
    NoSuchEngine {
        /// The index.
        engine: EngineIndex,
        /// Number of engines.
        num_engines: usize,
    },
    /// No other engine gets requests.
    #[error("engine {engine} is the last one that gets requests; expected another one that does")]
    LastEngine {
        /// The engine.
        engine: EngineIndex,
    },
    /// The model runs in the server's own process.
    #[error("there are no engine processes: the model runs in this process (single_process)")]
    NoProcesses,
}

impl EngineState {
    /// Returns the name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Restarting => "restarting",
        }
    }
}

impl Engines {
    /// Returns the engines of these starts.
    pub(crate) fn new(first: EngineStart, others: Vec<EngineStart>) -> Self {
        let engine = |(index, (launcher, loaded)): (usize, EngineStart)| {
            Arc::new(EngineProcess::new(EngineIndex(index), launcher, loaded))
        };
        let others = others.into_iter().enumerate();
        Self {
            first: engine((0, first)),
            others: others.map(|(index, start)| engine((index + 1, start))).collect(),
            drains: Mutex::new(()),
            needed_at_ends: Mutex::default(),
        }
    }

    /// Records the end of a process while these requests needed work beside its steps. Returns
    /// those that did so at an earlier end, too.
    pub(crate) fn needed_again(
        &self,
        beside: &[RequestId],
        is_live: impl Fn(RequestId) -> bool,
    ) -> Vec<RequestId> {
        self.needed_at_ends.lock().again(beside, is_live)
    }

    /// Returns all engines, by their indices.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<EngineProcess>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Returns the first engine.
    pub(crate) fn first(&self) -> &Arc<EngineProcess> {
        &self.first
    }

    /// Returns an engine.
    pub(crate) fn get(&self, engine: EngineIndex) -> Option<&Arc<EngineProcess>> {
        self.all().nth(engine.0)
    }

    /// Returns whether there is more than one engine.
    pub(crate) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns whether the cores of all engines have started.
    pub(crate) fn do_all_serve(&self) -> bool {
        self.all().all(|process| process.is_serving())
    }

    /// Returns whether a step is late in every engine that serves, so that nothing goes on.
    pub(crate) fn are_late(&self) -> bool {
        self.all().filter(|process| process.is_serving()).all(|process| process.is_late())
    }

    /// Lets an engine have no new requests. `moves` says whether its requests go on in others.
    ///
    /// # Errors
    /// [`DrainError`] if there is no such engine, or no other one would get requests.
    pub(crate) fn drain(&self, engine: EngineIndex, moves: bool) -> Result<(), DrainError> {
        let process = self.existing(engine)?;
        let _one_at_a_time = self.drains.lock();
        let is_other = |other: &&Arc<EngineProcess>| other.engine() != engine;
        if self.all().filter(is_other).all(|other| other.is_draining()) {
            return Err(DrainError::LastEngine { engine });
        }
        process.drain(moves);
        Ok(())
    }

    /// Lets an engine have new requests again.
    ///
    /// # Errors
    /// [`DrainError::NoSuchEngine`].
    pub(crate) fn undrain(&self, engine: EngineIndex) -> Result<(), DrainError> {
        self.existing(engine).map(|process| process.undrain())
    }

    fn existing(&self, engine: EngineIndex) -> Result<&Arc<EngineProcess>, DrainError> {
        let num_engines = self.all().count();
        self.get(engine).ok_or(DrainError::NoSuchEngine { engine, num_engines })
    }

    /// Returns how the last process ended, of the engines that have none now.
    pub(crate) fn last_end(&self) -> Option<String> {
        let gone = self.all().filter(|process| process.line().is_none());
        gone.filter_map(|process| process.view().ends.pop()).next()
    }

    /// Sends a frame to each running process. Returns whether one got it.
    pub(crate) fn send(&self, frame: &ToEngine) -> bool {
        self.all().filter(|process| process.send(frame).is_ok()).count() > 0
    }

    /// Makes a fault in each running process. Returns whether one got it.
    pub(crate) fn fault(&self, fault: Fault) -> bool {
        self.send(&ToEngine::Fault(fault))
    }

    /// Sets the token that ends each process in every step with a prompt that has it.
    pub(crate) fn set_poison(&self, token: Option<TokenId>) {
        self.all().for_each(|process| process.set_poison(token));
    }

    /// Sets whether an observer looks at the steps.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.all().for_each(|process| process.set_watched(is_watched));
    }

    /// Returns the predicted time of a step of one token: the longest of the engines.
    pub(crate) fn step_time(&self) -> Option<Micros> {
        self.all().filter_map(|process| process.step_time()).max()
    }

    /// Returns the number of messages that processes handled.
    pub(crate) fn num_messages(&self, edge: Edge) -> u64 {
        self.all().map(|process| process.num_messages(edge)).sum()
    }

    /// Returns the hangs in processes: actors, those of them that chaos did not order, and steps.
    pub(crate) fn hangs(&self) -> [u64; 3] {
        self.all().fold([0; 3], |mut sum, process| {
            sum.iter_mut().zip(process.hangs()).for_each(|(sum, more)| *sum += more);
            sum
        })
    }

    /// Lets a process read and check the adapter in the folder `path`. All engines have the same
    /// model and the same files. See [`EngineProcess::check_adapter`].
    pub(crate) async fn check_adapter(
        &self,
        path: &str,
    ) -> Option<Result<AdapterFingerprint, AdapterCheckError>> {
        let serving = self.all().find(|process| process.is_serving());
        serving.unwrap_or(&self.first).check_adapter(path).await
    }
}
