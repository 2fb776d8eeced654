//! A look into the running system, from outside of it: who is there, what goes on between them, what
//! is in the KV cache, what each request does. Two actors are asked, each for a short time and at
//! most once a look; one that does not answer is missing in the view, and nothing waits for it.

use std::time::Duration;

use super::{running::System, totals::TotalsView};
use crate::{
    error::ActorError,
    logic::{
        observe::{BlockMap, Timelines},
        request::ids::{Epoch, Micros},
        scheduler::SchedulerView,
    },
    message::{Edge, KvCacheManagerMessage, SchedulerMessage},
    supervision::directory::ActorStats,
};

/// How long an actor has to answer: it may be at a step, which is planned in less.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);
/// Running requests told of, at most; as many wait.
pub(crate) const MAX_REQUESTS: usize = 128;
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

impl System {
    /// How everything stands now. Takes at most as long as two actors may take to answer, which they
    /// do at the same time.
    pub async fn look(&self) -> HouseView {
        let context = self.context();
        let directory = &context.directory;
        // Before anybody is asked: the questions themselves need not be seen.
        let (at, actors, epoch) = (context.now(), self.actors(), self.epoch());
        let edges = context.observers.edges.all();
        let totals = context.observers.metrics.totals.view();
        let ask = |reply| SchedulerMessage::View { most: MAX_REQUESTS, reply };
        let scheduler = directory.scheduler.call("view", ANSWER_LIMIT, ask);
        let kv_cache =
            directory.kv_cache_manager.call("view", ANSWER_LIMIT, KvCacheManagerMessage::View);
        let (scheduler, kv_cache) = tokio::join!(scheduler, kv_cache);
        let timelines = context.observers.steps.timelines();
        HouseView { at, epoch, actors, edges, totals, scheduler, kv_cache, timelines }
    }

    /// Whether somebody looks again and again: then each step is noted for [`System::look`].
    pub fn set_watched(&self, is_watched: bool) {
        self.context().observers.steps.set_watched(is_watched);
    }
}
