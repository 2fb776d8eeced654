//! A look into the running system, from outside of it: who is there, what goes on between them, what
//! is in the KV cache, what each request does. Two actors are asked, each for a short time and at
//! most once a look; one that does not answer is missing in the view, and nothing waits for it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{directory::ActorStats, edges::EdgeCounts, system::System, totals::TotalsView};
use crate::{
    error::ActorError,
    logic::{
        house::{BlockMap, Timelines},
        ids::{Epoch, Micros},
        scheduler::SchedulerView,
        scheduler_output::SchedulerOutput,
    },
    message::{Edge, KvCacheManagerMessage, SchedulerMessage},
};

/// How long an actor has to answer: it may be at a step, which is planned in less.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);
/// Running requests told of, at most; as many wait.
pub const MAX_REQUESTS: usize = 128;
/// Steps kept between two looks, at most. A look is due long before.
const MAX_STEPS: usize = 2_048;

/// What is noted for those who look.
#[derive(Debug, Default)]
pub struct House {
    /// Messages along each edge, always.
    pub edges: EdgeCounts,
    /// Steps are kept only while somebody watches.
    is_watched: AtomicBool,
    steps: Mutex<VecDeque<Arc<SchedulerOutput>>>,
    timelines: Mutex<Timelines>,
}

/// The system at one time.
#[derive(Debug)]
pub struct HouseView {
    /// Since the system started.
    pub at: Micros,
    /// The current epoch.
    pub epoch: Epoch,
    /// Every actor, supervisors first.
    pub actors: Vec<ActorStats>,
    /// Messages handled since the start.
    pub edges: Vec<(Edge, u64)>,
    /// What was counted since the start.
    pub totals: TotalsView,
    /// The scheduler, if it answered.
    pub scheduler: Result<SchedulerView, ActorError>,
    /// The KV cache, if its manager answered: nothing before the first plan of the manager's life.
    pub kv_cache: Result<Option<BlockMap>, ActorError>,
    /// What requests did in which step while somebody watched.
    pub timelines: Timelines,
}

impl House {
    /// A step goes to the worker.
    pub fn note_step(&self, step: &Arc<SchedulerOutput>) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let mut steps = self.steps.lock();
        if steps.len() == MAX_STEPS {
            steps.pop_front();
        }
        steps.push_back(Arc::clone(step));
    }

    /// Whether steps are kept from now on. What was kept is forgotten when nobody watches any more.
    pub fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
        if !is_watched {
            self.steps.lock().clear();
            *self.timelines.lock() = Timelines::default();
        }
    }

    fn timelines(&self) -> Timelines {
        // The scheduler waits for nobody who looks.
        let steps = std::mem::take(&mut *self.steps.lock());
        let mut timelines = self.timelines.lock();
        steps.iter().for_each(|step| timelines.record(step));
        timelines.clone()
    }
}

impl System {
    /// How everything stands now. Takes at most as long as two actors may take to answer, which they
    /// do at the same time.
    pub async fn look(&self) -> HouseView {
        let context = self.context();
        let directory = &context.directory;
        // Before anybody is asked: the questions themselves need not be seen.
        let (at, actors, epoch) = (context.now(), self.actors(), self.epoch());
        let edges = context.house.edges.all();
        let totals = context.metrics.totals.view();
        let ask = |reply| SchedulerMessage::View { most: MAX_REQUESTS, reply };
        let scheduler = directory.scheduler.call("view", ANSWER_LIMIT, ask);
        let kv_cache =
            directory.kv_cache_manager.call("view", ANSWER_LIMIT, KvCacheManagerMessage::View);
        let (scheduler, kv_cache) = tokio::join!(scheduler, kv_cache);
        let timelines = context.house.timelines();
        HouseView { at, epoch, actors, edges, totals, scheduler, kv_cache, timelines }
    }

    /// Whether somebody looks again and again: then each step is noted for [`System::look`].
    pub fn set_watched(&self, is_watched: bool) {
        self.context().house.set_watched(is_watched);
    }
}
