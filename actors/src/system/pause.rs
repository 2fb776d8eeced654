//! Pause and sleep. The context keeps them, so they survive every actor's death.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    context::Context,
    hold::MayRelease,
    running::System,
    submit::{RETRY_PAUSE, unavailable},
};
use crate::{
    error::{ActorError, RequestError},
    logic::scheduler::PauseState,
    message::SchedulerMessage,
    ports::ExecuteError,
};

/// Time that aborted requests may take to leave the running set.
const ABORT_LIMIT: Duration = Duration::from_secs(30);

/// The treatment of running requests at a pause. New requests wait in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PauseMode {
    /// Running requests are aborted, and waiting ones too.
    #[default]
    Abort,
    /// Running requests run to their end.
    Wait,
    /// Running requests stop, and continue later where they were.
    Keep,
}

impl System {
    /// Holds all requests back until [`System::resume`]. Completes when nothing runs. A caller that
    /// stops waiting leaves the engine paused.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when aborted requests do not leave, and the engine stays
    /// paused. The same error when another caller resumes it meanwhile.
    pub async fn pause(&self, mode: PauseMode) -> Result<(), RequestError> {
        self.paused(mode).await.map(drop)
    }

    /// Pauses, and returns the number of this pause.
    async fn paused(&self, mode: PauseMode) -> Result<u64, RequestError> {
        let set = |pause| self.set_pause_if(pause, |_| true).ok_or_else(superseded);
        let limit = match mode {
            PauseMode::Keep => {
                return set(PauseState::PausedAll);
            }
            PauseMode::Wait => None,
            PauseMode::Abort => Some(ABORT_LIMIT),
        };
        let number = set(PauseState::PausedNew)?;
        if mode == PauseMode::Abort {
            self.abort_all();
        }
        let started = Instant::now();
        // While the scheduler is being replaced, it does not answer, but its successor will.
        while !self.status().await.is_ok_and(|status| status.scheduler.num_running == 0) {
            if self.context().ground.hold.number() != number {
                return Err(superseded());
            }
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                let cause = "aborted requests still run".to_owned();
                return Err(RequestError::Unavailable(cause));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Ok(number)
    }

    /// Ends a pause and a sleep. While memory is being released, it takes effect after the release.
    pub fn resume(&self) {
        self.set_pause(PauseState::Unpaused);
    }

    /// Returns the pause that was set last.
    #[must_use]
    pub fn pause_state(&self) -> PauseState {
        self.context().ground.hold.wanted()
    }

    /// Aborts every open request. Returns their number.
    pub fn abort_all(&self) -> usize {
        let open = self.context().ledger().open_requests();
        let count = open.len();
        self.abort(open);
        count
    }

    /// Pauses, and releases the memory of the KV cache to the operating system. Kept requests are
    /// computed again when they go on.
    ///
    /// # Errors
    /// As [`System::pause`]. [`RequestError::Unavailable`] also when the executors cannot release
    /// memory. The engine is paused then.
    pub async fn sleep(&self, mode: PauseMode) -> Result<(), RequestError> {
        let number = self.paused(mode).await?;
        let all = self.set_pause_if(PauseState::PausedAll, |latest| latest == number);
        let number = all.ok_or_else(superseded)?;
        // After this answer, no step is being computed and no block has content.
        if !self.reset_prefix_cache(true).await? {
            let cause = "blocks of the KV cache are still in use".to_owned();
            return Err(RequestError::Unavailable(cause));
        }
        let mut release = Release::begin(self.context(), number).await?;
        blocking(move || release.carry_out()).await
    }

    /// Allocates the memory again, and resumes.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when there is not enough memory. The engine goes on sleeping.
    pub async fn wake_up(&self) -> Result<(), RequestError> {
        // If it were allocated during the release, the memory would be needed twice.
        self.context().ground.hold.at_rest().await;
        let executors = Arc::clone(&self.context().vault.executors);
        blocking(move || executors.restore_kv_cache()).await?;
        self.resume();
        Ok(())
    }

    /// Returns whether the memory of the KV cache is released.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.context().ground.hold.is_asleep()
    }
}

/// A release of the KV cache's memory. No step runs until this value is dropped: a step would find
/// the cache neither full nor empty.
struct Release {
    context: Arc<Context>,
    is_released: bool,
}

impl Release {
    /// Begins a release, unless the pause of this number was superseded.
    async fn begin(context: &Arc<Context>, number: u64) -> Result<Self, RequestError> {
        let hold = &context.ground.hold;
        loop {
            match hold.begin_release(number) {
                MayRelease::Yes => break,
                MayRelease::Later => hold.at_rest().await,
                MayRelease::Superseded => return Err(superseded()),
            }
        }
        Ok(Self { context: Arc::clone(context), is_released: false })
    }

    /// Releases gigabytes, which takes a while.
    fn carry_out(&mut self) -> Result<(), ExecuteError> {
        self.context.vault.executors.release_kv_cache()?;
        self.is_released = true;
        Ok(())
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if self.context.ground.hold.end_release(self.is_released) {
            for core in self.context.directory.cores() {
                core.scheduler.cast(SchedulerMessage::PauseChanged);
            }
        }
    }
}

fn superseded() -> RequestError {
    RequestError::Unavailable("it was resumed, or paused anew, meanwhile".to_owned())
}

/// Allocating and releasing gigabytes takes a while, so a blocking thread does it.
async fn blocking<E: std::fmt::Display + Send + 'static>(
    work: impl FnOnce() -> Result<(), E> + Send + 'static,
) -> Result<(), RequestError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| ActorError::Device(error.to_string()));
    done.and_then(|done| done.map_err(|error| ActorError::Device(error.to_string())))
        .map_err(unavailable)
}
