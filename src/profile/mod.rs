//! Where an engine's time goes: by operation, as the model runner and the layers tell it
//! ([`playhouse_kernels::profile`]), and by actor, as every handler does.
//!
//! Begin a [`Profiler`], give its [`Profiler::handlers`] to [`Engine::spawn_profiled`], and
//! [`Profiler::record`] while the engine works.
//!
//! [`Engine::spawn_profiled`]: crate::Engine::spawn_profiled

mod summary;
#[cfg(test)]
mod tests;
mod trace;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use playhouse_actors::ports::{Handled, HandlerProfiler};
use playhouse_kernels::profile::{Recording, ThreadSpans};

pub use summary::{ActorRow, OpRow, Summary};

/// Messages at most that are kept, 100 MB of them: later ones are counted only.
const HANDLED_MAX: usize = 1 << 20;

/// What was recorded.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Begin of the recording; times in a trace count from here.
    pub begin: Instant,
    /// For how long was recorded.
    pub wall: Duration,
    /// What the threads that compute did.
    pub threads: Vec<ThreadSpans>,
    /// What the actors did, in the order in which they were done.
    pub handled: Vec<Handled>,
    /// Messages that were too many to keep.
    pub num_handled_lost: usize,
}

/// Collects what actors tell.
#[derive(Debug, Default)]
struct Handlers {
    kept: Mutex<(Vec<Handled>, usize)>,
}

impl HandlerProfiler for Handlers {
    fn handled(&self, handled: Handled) {
        let mut kept = self.kept.lock();
        if kept.0.len() < HANDLED_MAX {
            kept.0.push(handled);
        } else {
            kept.1 += 1;
        }
    }
}

/// Hears of operations and messages.
#[derive(Debug, Clone, Default)]
pub struct Profiler {
    handlers: Arc<Handlers>,
}

/// A recording of the process runs already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another profile is being recorded in this process")]
pub struct AlreadyRecording;

impl Profiler {
    /// For the engine whose actors are to be heard.
    #[must_use]
    pub fn handlers(&self) -> Arc<dyn HandlerProfiler> {
        Arc::clone(&self.handlers) as Arc<dyn HandlerProfiler>
    }

    /// Records while `work` goes on.
    ///
    /// # Errors
    /// [`AlreadyRecording`]: there is one recording of operations at a time in a process.
    pub async fn record<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<(T, Profile), AlreadyRecording> {
        let recording = Recording::start().ok_or(AlreadyRecording)?;
        *self.handlers.kept.lock() = (Vec::new(), 0);
        let begin = recording.begin();
        let outcome = work.await;
        let wall = begin.elapsed();
        let threads = recording.finish();
        let (mut handled, num_handled_lost) = std::mem::take(&mut *self.handlers.kept.lock());
        handled.retain(|handled| handled.begin >= begin);
        Ok((outcome, Profile { begin, wall, threads, handled, num_handled_lost }))
    }
}

impl Profile {
    /// Pieces that were too many to keep: what is told of the others is then not all.
    #[must_use]
    pub fn num_lost(&self) -> usize {
        self.num_handled_lost + self.threads.iter().map(|thread| thread.num_lost).sum::<usize>()
    }
}
