//! Watches the threads of the runtime and the accept loop. It runs on a thread of its own that
//! waits for neither.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use metrics::{Counter, Gauge, counter, gauge};
use tokio::runtime::Handle;

use super::accept::{AcceptContext, AcceptLoop};
use crate::server::health::{
    heartbeat::{Heartbeat, PERIOD, Stillness},
    pulse::Freeze,
};

/// The watch. It ends on drop.
#[derive(Debug)]
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Starts an accept loop, and watches it and the engine's runtime.
    ///
    /// # Errors
    /// The system's error if it has no thread.
    pub(super) fn begin(context: AcceptContext) -> io::Result<Self> {
        let accept_loop = context.start()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, thread_token) = (is_over.clone(), context.threads.token());
        let mut rounds = Rounds::new(context, accept_loop);
        let watch = move || {
            while !over.load(Relaxed) {
                rounds.look();
                thread::park_timeout(PERIOD);
            }
            drop(rounds);
            drop(thread_token);
        };
        let thread = thread::Builder::new().name("playhouse-watch".to_owned()).spawn(watch)?;
        Ok(Self { is_over, thread })
    }
}

impl Watch {
    /// Ends the watch.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
        self.thread.thread().unpark();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

struct Rounds {
    context: AcceptContext,
    accept_loop: AcceptLoop,
    loop_stillness: Stillness<u64>,
    runtime: RuntimeWatch,
    figures: Figures,
}

struct Figures {
    is_frozen: Gauge,
    stuck_threads: Gauge,
    freezes: Counter,
    replaced_loops: Counter,
}

impl Rounds {
    fn new(context: AcceptContext, accept_loop: AcceptLoop) -> Self {
        let figures = Figures {
            is_frozen: gauge!("playhouse:runtime_frozen"),
            stuck_threads: gauge!("playhouse:runtime_stuck_threads"),
            freezes: counter!("playhouse:runtime_freezes_total"),
            replaced_loops: counter!("playhouse:accept_loop_restarts_total"),
        };
        figures.is_frozen.set(0.0);
        figures.stuck_threads.set(0.0);
        figures.freezes.increment(0);
        figures.replaced_loops.increment(0);
        let runtime = RuntimeWatch::new(context.runtime.clone());
        Self { context, accept_loop, loop_stillness: Stillness::default(), runtime, figures }
    }

    fn look(&mut self) {
        let freeze = self.runtime.look();
        let before = self.context.pulse.set(freeze);
        self.tell(before, freeze);
        // While the server closes or leaves, accept loops make no turns.
        let phases = &self.context.phases;
        let is_open = !phases.closing.is_cancelled() && !phases.leaving.is_cancelled();
        if self.loop_stillness.look(self.accept_loop.turns()) && is_open {
            self.replace_loop();
        }
    }

    fn tell(&self, before: Freeze, now: Freeze) {
        if before == now {
            return;
        }
        self.figures.is_frozen.set(f64::from(u8::from(now.is_whole)));
        self.figures.stuck_threads.set(now.stuck_threads as f64);
        if now.is_whole && !before.is_whole {
            self.figures.freezes.increment(1);
            tracing::error!(
                stuck_threads = now.stuck_threads,
                "the runtime is frozen: no thread takes up work; health is 503 until one does"
            );
        } else if now.is_none() {
            tracing::info!("all threads of the runtime make progress again");
        } else {
            tracing::warn!(
                stuck_threads = now.stuck_threads,
                "threads of the runtime are stuck; health is 503 until they come back"
            );
        }
    }

    fn replace_loop(&mut self) {
        tracing::error!("the accept loop is frozen; another takes its place");
        match self.context.start() {
            Ok(accept_loop) => {
                self.accept_loop.retire();
                (self.accept_loop, self.loop_stillness) = (accept_loop, Stillness::default());
                self.figures.replaced_loops.increment(1);
            }
            Err(error) => tracing::error!(%error, "no other accept loop can be started"),
        }
    }
}

/// Watches the threads of a runtime.
struct RuntimeWatch {
    runtime: Handle,
    heartbeat: Heartbeat,
    threads: Vec<Stillness<(u64, Duration)>>,
}

impl RuntimeWatch {
    fn new(runtime: Handle) -> Self {
        let threads = (0..runtime.metrics().num_workers()).map(|_| Stillness::default()).collect();
        Self { heartbeat: Heartbeat::new(runtime.clone()), runtime, threads }
    }

    fn look(&mut self) -> Freeze {
        let is_whole = self.heartbeat.look();
        let metrics = self.runtime.metrics();
        let threads = self.threads.iter_mut().enumerate();
        let stuck = threads.filter_map(|(index, stillness)| {
            // An even count means at work. Every few tasks, a thread parks or its busy time is
            // counted.
            let parks = metrics.worker_park_unpark_count(index);
            let busy = metrics.worker_total_busy_duration(index);
            let is_stuck = stillness.look((parks, busy));
            (is_stuck && parks.is_multiple_of(2)).then_some(index)
        });
        Freeze { is_whole, stuck_threads: stuck.count() }
    }
}
