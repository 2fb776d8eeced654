//! A view of the running system from outside: its actors, their messages, the KV cache and the
//! requests. Three actors are asked, each for a short time and at most once a view. An actor that
//! does not answer is missing in the view, and nothing waits for it. With several engines, the
//! caches and the steps are those of one of them.

use std::time::Duration;

use super::{running::System, totals::TotalsView};
use crate::{
    error::ActorError,
    link::frames::{Answer, Question},
    logic::{
        encoder_cache::EncoderCacheView,
        observe::{BlockMap, Timelines},
        request::ids::{Epoch, Micros},
        scheduler::SchedulerView,
    },
    message::{Edge, EncoderCacheManagerMessage, KvCacheManagerMessage, Role, SchedulerMessage},
    supervision::directory::{ActorStats, CoreSlots},
};

/// Time that an actor has to answer. It may be planning a step, which takes less.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);
/// Largest number of running requests in a view, and of waiting ones.
pub(crate) const MAX_REQUESTS: usize = 128;

/// The state of the system at one time.
#[derive(Debug)]
pub struct SystemView {
    /// Time since the system started.
    pub at: Micros,
    /// The current epoch.
    pub epoch: Epoch,
    /// Every actor, supervisors first.
    pub actors: Vec<ActorStats>,
    /// Messages handled since the start.
    pub edges: Vec<(Edge, u64)>,
    /// The counts since the start.
    pub totals: TotalsView,
    /// The scheduler's view, if it answered.
    pub scheduler: Result<SchedulerView, ActorError>,
    /// The map of the KV cache, if its manager answered. `None` before the manager's first plan.
    pub kv_cache: Result<Option<BlockMap>, ActorError>,
    /// The figures of the encoder cache, if its manager answered. `None` for a model without media.
    pub encoder_cache: Option<EncoderCacheView>,
    /// The steps of each request, noted while an observer watched.
    pub timelines: Timelines,
}

impl System {
    /// Returns the state of the system now. Takes at most as long as one answer of each engine may
    /// take, because the actors of an engine answer at the same time.
    pub async fn look(&self) -> SystemView {
        let context = self.context();
        // They are read before the two calls, so they do not count the calls themselves.
        let (at, actors, epoch) = (context.now(), self.actors(), self.epoch());
        let edges = self.edges();
        let totals = context.observers.metrics.totals().view();
        let scheduler = self.schedulers();
        let manager = &self.seen_core().kv_cache_manager;
        let kv_cache = manager.call("view", ANSWER_LIMIT, KvCacheManagerMessage::View);
        let (scheduler, kv_cache, encoder_cache, timelines) =
            tokio::join!(scheduler, kv_cache, self.encoder_cache(), self.timelines());
        SystemView {
            at,
            epoch,
            actors,
            edges,
            totals,
            scheduler,
            kv_cache,
            encoder_cache,
            timelines,
        }
    }

    /// Returns the views of all schedulers that answer together.
    async fn schedulers(&self) -> Result<SchedulerView, ActorError> {
        let mut all: Option<Result<SchedulerView, ActorError>> = None;
        for core in self.context().directory.cores() {
            let ask = |reply| SchedulerMessage::View { most: MAX_REQUESTS, reply };
            let view = core.scheduler.call("view", ANSWER_LIMIT, ask).await;
            all = Some(match (all, view) {
                (Some(Ok(all)), Ok(view)) => Ok(all.and(view)),
                (Some(Ok(all)), Err(_)) => Ok(all),
                (_, view) => view,
            });
        }
        all.unwrap_or(Err(ActorError::Gone { callee: Role::Scheduler.as_str() }))
    }

    /// Returns the core whose caches are seen: the first of those that serve.
    fn seen_core(&self) -> &CoreSlots {
        let directory = &self.context().directory;
        let serving = directory.cores().find(|core| core.is_alive());
        serving.unwrap_or(&directory.core)
    }

    /// Returns the figures of the encoder cache. `None` if the model takes no media, or the manager
    /// does not answer in time.
    pub async fn encoder_cache(&self) -> Option<EncoderCacheView> {
        let context = self.context();
        if context.config.scheduler.encoder_cache_size == 0 {
            return None;
        }
        let manager = &self.seen_core().encoder_cache_manager;
        manager.call("view", ANSWER_LIMIT, EncoderCacheManagerMessage::View).await.ok()
    }

    /// Sets whether an observer looks again and again. If so, each step is noted for
    /// [`System::look`].
    pub fn set_watched(&self, is_watched: bool) {
        match self.context().part.front() {
            None => self.context().observers.steps.set_watched(is_watched),
            Some(engines) => engines.set_watched(is_watched),
        }
    }

    /// Returns the messages handled since the start, those of engine processes included.
    fn edges(&self) -> Vec<(Edge, u64)> {
        let context = self.context();
        let elsewhere = |edge| context.part.front().map_or(0, |engines| engines.num_messages(edge));
        let own = context.observers.edges.all().into_iter();
        own.map(|(edge, count)| (edge, count + elsewhere(edge))).collect()
    }

    /// Returns the steps of each request. They are missing if the engine process does not answer.
    async fn timelines(&self) -> Timelines {
        let context = self.context();
        let Some(engines) = context.part.front() else {
            return context.observers.steps.timelines();
        };
        match engines.ask(Question::Timelines, ANSWER_LIMIT).await {
            Some(Answer::Timelines(timelines)) => timelines,
            _ => Timelines::default(),
        }
    }
}
