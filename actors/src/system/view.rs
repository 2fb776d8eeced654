//! A view of the running system from outside: its actors, their messages, the KV cache and the
//! requests. Three actors are asked, each for a short time and at most once a view. An actor that
//! does not answer is missing in the view, and nothing waits for it. Several engines are asked at
//! the same time.

use std::time::Duration;

use futures_util::future::join_all;

use super::{running::System, totals::TotalsView};
use crate::{
    error::ActorError,
    link::frames::{Answer, Question},
    logic::{
        encoder_cache::EncoderCacheView,
        observe::{BlockMap, Timelines},
        request::ids::{EngineIndex, Epoch, Micros},
        scheduler::SchedulerView,
    },
    message::{Edge, EncoderCacheManagerMessage, KvCacheManagerMessage, SchedulerMessage},
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
    /// The core of each engine, by its index.
    pub cores: Vec<CoreView>,
}

/// The state of one engine's core.
#[derive(Debug)]
pub struct CoreView {
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
    /// Returns the state of the system now. Takes at most as long as one answer may take, because
    /// all actors answer at the same time.
    pub async fn look(&self) -> SystemView {
        let context = self.context();
        // They are read before the calls, so they do not count the calls themselves.
        let (at, actors, epoch) = (context.now(), self.actors(), self.epoch());
        let edges = self.edges();
        let totals = context.observers.metrics.totals().view();
        let cores = context.directory.cores().enumerate();
        let cores =
            join_all(cores.map(|(engine, core)| self.core(EngineIndex(engine), core))).await;
        SystemView { at, epoch, actors, edges, totals, cores }
    }

    async fn core(&self, engine: EngineIndex, core: &CoreSlots) -> CoreView {
        let ask = |reply| SchedulerMessage::View { most: MAX_REQUESTS, reply };
        let (scheduler, kv_cache, encoder_cache, timelines) = tokio::join!(
            core.scheduler.call("view", ANSWER_LIMIT, ask),
            core.kv_cache_manager.call("view", ANSWER_LIMIT, KvCacheManagerMessage::View),
            self.encoder_cache_of(core),
            self.timelines(engine)
        );
        CoreView { scheduler, kv_cache, encoder_cache, timelines }
    }

    /// Returns the figures of each engine's encoder cache, by its index. `None` if the model takes
    /// no media, or the manager does not answer in time.
    pub async fn encoder_caches(&self) -> Vec<Option<EncoderCacheView>> {
        join_all(self.context().directory.cores().map(|core| self.encoder_cache_of(core))).await
    }

    async fn encoder_cache_of(&self, core: &CoreSlots) -> Option<EncoderCacheView> {
        if self.context().config.scheduler.encoder_cache_size == 0 {
            return None;
        }
        let manager = &core.encoder_cache_manager;
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

    /// Returns the steps of an engine's requests. They are missing if its process does not answer.
    async fn timelines(&self, engine: EngineIndex) -> Timelines {
        let context = self.context();
        let Some(engines) = context.part.front() else {
            return context.observers.steps.timelines();
        };
        let Some(process) = engines.get(engine) else { return Timelines::default() };
        match process.ask(Question::Timelines, ANSWER_LIMIT).await {
            Some(Answer::Timelines(timelines)) => timelines,
            _ => Timelines::default(),
        }
    }
}
