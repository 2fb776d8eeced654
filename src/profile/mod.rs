//! Where an engine's time goes, by operation and by actor. The model runner and the layers report
//! operations ([`playhouse_kernels::profile`]), and each handler reports its messages.
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

/// Most messages that are kept, 100 MB of them. Later ones are only counted.
const HANDLED_MAX: usize = 1 << 20;

/// A recording.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Begin of the recording. Times in a trace count from here.
    pub begin: Instant,
    /// Length of the recording.
    pub wall: Duration,
    /// Operations of the threads that compute.
    pub threads: Vec<ThreadSpans>,
    /// Messages that actors handled, in the order of their ends.
    pub handled: Vec<Handled>,
    /// Number of messages beyond the limit, which were not kept.
    pub num_handled_lost: usize,
}

/// Collects the reports of actors.
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

/// Records operations and messages.
#[derive(Debug, Clone, Default)]
pub struct Profiler {
    handlers: Arc<Handlers>,
}

/// Another recording of this process is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another profile is being recorded in this process")]
pub struct AlreadyRecording;

impl Profiler {
    /// Returns the profiler for the engine whose actors are recorded.
    #[must_use]
    pub fn handlers(&self) -> Arc<dyn HandlerProfiler> {
        Arc::clone(&self.handlers) as Arc<dyn HandlerProfiler>
    }

    /// Records while `work` runs.
    ///
    /// # Errors
    /// [`AlreadyRecording`]: a process has at most one recording of operations at a time.
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
    /// Returns the number of spans and messages beyond the limits. If it is not 0, the profile is
    /// incomplete.
    #[must_use]
    pub fn num_lost(&self) -> usize {
        self.num_handled_lost + self.threads.iter().map(|thread| thread.num_lost).sum::<usize>()
    }
}
