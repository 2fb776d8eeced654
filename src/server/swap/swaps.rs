//! Swaps of a server's engine, and the engines that still have requests of before.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    served::ServedEngine,
    turns::{Change, Turn, Turns},
};
use crate::{
    api::{Health, Journal, PauseState, RequestError},
    config::EngineConfig,
    engine::Engine,
    server::{
        generate::open_requests::OpenRequests,
        health::frozen,
        http::{
            error::ApiError,
            listen::{CurrentRoutes, WeakRoutes},
        },
        resume,
        state::AppState,
    },
};

/// Most engines of earlier swaps that may have requests. Each holds the memory of a model.
const RETIRED_MAX: usize = 2;
/// Time between two looks at the requests of such an engine.
const LOOK: Duration = Duration::from_millis(50);

/// The swaps of one server.
pub(in crate::server) struct Swaps {
    served: ServedEngine,
    /// The routes hold the state, and the state holds this value.
    app: WeakRoutes,
    frozen: WeakRoutes,
    draining: CancellationToken,
    turns: Turns,
    retired: Mutex<Retired>,
    /// Cancelled at the server's end. Engines with requests of before end then.
    over: CancellationToken,
    retiring: TaskTracker,
}

/// The engines of before, in the order of their swaps.
#[derive(Default)]
struct Retired {
    /// Whether the server drains. Then no swap may complete.
    is_closed: bool,
    num_swaps: u64,
    engines: BTreeMap<u64, (Engine, OpenRequests)>,
    /// The journals of these engines, and of earlier ones. Kept answers hold them.
    journals: Vec<Weak<Journal>>,
}

/// A completed swap.
pub(super) struct Swapped {
    /// The first name of the new model.
    pub(super) model: String,
    /// That of the old one.
    pub(super) previous_model: String,
    pub(super) load_time: Duration,
}

impl Swaps {
    /// Returns the swaps of a server of `served` by these routes.
    pub(in crate::server) fn new(
        served: ServedEngine,
        app: &CurrentRoutes,
        frozen: &CurrentRoutes,
        draining: CancellationToken,
    ) -> Self {
        Self {
            served,
            app: app.downgrade(),
            frozen: frozen.downgrade(),
            draining,
            turns: Turns::default(),
            retired: Mutex::default(),
            over: CancellationToken::new(),
            retiring: TaskTracker::new(),
        }
    }

    /// Loads a model with these settings, and gives its engine all new requests. The requests of
    /// the old engine, which is that of `state`, then have `drain_limit` to end.
    ///
    /// # Errors
    /// If a swap is not possible now, or the model cannot be loaded. The old engine goes on.
    pub(super) async fn swap(
        self: Arc<Self>,
        state: AppState,
        config: EngineConfig,
        drain_limit: Duration,
    ) -> Result<Swapped, ApiError> {
        let _turn = self.turns.take(Change::Swap)?;
        self.check_retired()?;
        check(&state)?;
        let began = Instant::now();
        let name = |engine: &Engine| engine.served_model_names().first().cloned();
        let previous_model = name(&state.engine).unwrap_or_default();
        tracing::info!(model = config.model_root(), "a swap begins: the model is loaded");
        let engine = self.load(&state.engine, config).await.inspect_err(|error| {
            tracing::warn!(error = error.message, "no swap: the model was not loaded");
        })?;
        let load_time = began.elapsed();
        let model = name(&engine).unwrap_or_default();
        let changed = async {
            let next = state.successor(engine.clone()).map_err(not_loaded)?;
            // Before a client can ask for them.
            resume::revive(&next).await;
            self.change(state, next, drain_limit)
        };
        if let Err(error) = changed.await {
            engine.shutdown().await;
            return Err(error);
        }
        tracing::info!(model, previous_model, ?load_time, "new requests get the new model");
        Ok(Swapped { model, previous_model, load_time })
    }

    /// Returns an engine with another model, beside `present`.
    async fn load(&self, present: &Engine, config: EngineConfig) -> Result<Engine, ApiError> {
        let engine = present.clone();
        let mut starting = tokio::spawn(async move { engine.start_successor(config).await });
        let started = tokio::select! {
            started = &mut starting => started,
            () = self.draining.cancelled() => {
                // A load cannot be interrupted.
                tokio::spawn(async move {
                    if let Ok(Ok(engine)) = starting.await {
                        engine.shutdown().await;
                    }
                });
                return Err(RequestError::Draining.into());
            }
        };
        let started = started.map_err(|error| ApiError::internal(error.to_string()))?;
        started.map_err(|error| ApiError::not_loaded(error.to_string()))
    }

    /// Gives new requests to the engine of `next`, at once.
    fn change(
        self: &Arc<Self>,
        state: AppState,
        next: AppState,
        drain_limit: Duration,
    ) -> Result<(), ApiError> {
        let engine = next.engine.clone();
        let frozen_routes = frozen::router(next.clone());
        let routes = crate::server::router(next.clone()).map_err(not_loaded)?;
        let mut retired = self.retired.lock();
        let (app, frozen) = match (self.app.upgrade(), self.frozen.upgrade()) {
            (Some(app), Some(frozen)) if !retired.is_closed => (app, frozen),
            _ => return Err(RequestError::Draining.into()),
        };
        let old = self.served.replace(engine);
        app.replace(routes);
        frozen.replace(frozen_routes);
        retired.num_swaps += 1;
        let number = retired.num_swaps;
        retired.engines.insert(number, (old.clone(), state.open.clone()));
        if let Some(journal) = old.journal() {
            // Its answers stay until their clients can no longer ask for them.
            journal.outlive_engine();
            retired.journals.retain(|journal| journal.strong_count() > 0);
            retired.journals.push(Arc::downgrade(journal));
        }
        state.superseded.cancel();
        tokio::spawn(resume::take_over(next));
        let (users, kept) = (state.users(), Arc::clone(&state.kept));
        let rendering = Arc::clone(&state.rendering);
        drop(state);
        let retire = Arc::clone(self).retire(number, old, users, drain_limit);
        self.retiring.spawn(async move {
            retire.await;
            kept.lose_model(&rendering);
        });
        Ok(())
    }

    /// Ends an engine once no request uses it, or after `limit`. `users` are the handlers with
    /// requests of before.
    async fn retire(
        self: Arc<Self>,
        number: u64,
        engine: Engine,
        users: TaskTracker,
        limit: Duration,
    ) {
        let idle = async {
            users.close();
            users.wait().await;
            while engine.open_requests() > 0 && engine.health() != Health::Dead {
                sleep(LOOK).await;
            }
        };
        let model = engine.served_model_names().first().cloned().unwrap_or_default();
        tokio::select! {
            () = self.over.cancelled() => {}
            ended = timeout(limit, idle) => if ended.is_err() {
                let open_requests = engine.open_requests();
                tracing::warn!(model, open_requests, "drain_timeout is over: requests are cut off");
            }
        }
        engine.shutdown().await;
        self.retired.lock().engines.remove(&number);
        tracing::info!(model, "the engine of the old model has ended");
    }

    /// Checks that one more engine of before may have requests.
    fn check_retired(&self) -> Result<(), ApiError> {
        let num_retired = self.retired.lock().engines.len();
        if num_retired < RETIRED_MAX {
            return Ok(());
        }
        Err(ApiError::conflict(format!(
            "{num_retired} earlier models still have open requests, each in the memory of its \
             engine; swap again when one of them has ended"
        )))
    }

    /// Returns the turn for an upgrade. Until it is dropped, no swap begins.
    ///
    /// # Errors
    /// 409 if a swap or an upgrade is under way, or if the model is another one than at the start.
    pub(in crate::server) fn begin_upgrade(&self) -> Result<Turn, ApiError> {
        let turn = self.turns.take(Change::Upgrade)?;
        if self.retired.lock().num_swaps > 0 {
            let message = "the model was swapped, and a new process would serve the one of its \
                           command line: restart the server with the new model";
            return Err(ApiError::conflict(message));
        }
        Ok(turn)
    }

    /// Returns the engines of before that have requests, with the table of these.
    pub(in crate::server) fn retired(&self) -> Vec<(Engine, OpenRequests)> {
        self.retired.lock().engines.values().cloned().collect()
    }

    /// Lets no further swap complete, and lets no engine accept requests.
    pub(in crate::server) fn begin_drain(&self) {
        let engines = {
            let mut retired = self.retired.lock();
            retired.is_closed = true;
            retired.engines.values().map(|(engine, _)| engine.clone()).collect::<Vec<_>>()
        };
        engines.iter().for_each(Engine::begin_drain);
        self.served.current().begin_drain();
    }

    /// Returns the number of open requests of all engines.
    pub(in crate::server) fn open_requests(&self) -> usize {
        let retired = self.retired();
        let of_retired: usize = retired.iter().map(|(engine, _)| engine.open_requests()).sum();
        of_retired + self.served.current().open_requests()
    }

    /// Returns the journals of all engines, the present one's first.
    pub(in crate::server) fn journals(&self) -> Vec<Arc<Journal>> {
        let present = self.served.current().journal().cloned();
        let retired = self.retired.lock();
        present.into_iter().chain(retired.journals.iter().filter_map(Weak::upgrade)).collect()
    }

    /// Ends the engines of before.
    pub(in crate::server) async fn end(&self) {
        self.over.cancel();
        self.retiring.close();
        self.retiring.wait().await;
    }
}

fn not_loaded(error: crate::server::ServerError) -> ApiError {
    ApiError::not_loaded(error.to_string())
}

/// Checks that the model of this state can be swapped.
fn check(state: &AppState) -> Result<(), ApiError> {
    let engine = &state.engine;
    if state.superseded.is_cancelled() {
        return Err(ApiError::conflict("another swap has just ended"));
    }
    let is_paused = engine.pause_state() != PauseState::Unpaused;
    if is_paused || engine.is_sleeping() || state.control.dozes() {
        return Err(ApiError::conflict("the engine is paused or asleep: POST /wake_up first"));
    }
    Ok(())
}
