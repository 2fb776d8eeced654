//! Holding the engine back: pause, and sleep. What is held back survives every actor's death, as
//! the context keeps it.

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

/// How long aborted requests may take to leave the running set.
const ABORT_LIMIT: Duration = Duration::from_secs(30);

/// What becomes of the requests that run when the engine is paused. New ones wait in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PauseMode {
    /// They are aborted, and with them those that wait.
    #[default]
    Abort,
    /// They run to their end.
    Wait,
    /// They stand still, and go on where they were.
    Keep,
}

impl System {
    /// Holds all requests back until [`System::resume`]. Completes when nothing runs any more; a
    /// caller that stops waiting leaves the engine paused.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when aborted requests do not leave, and the engine is paused then;
    /// or when somebody resumes it meanwhile.
    pub async fn pause(&self, mode: PauseMode) -> Result<(), RequestError> {
        self.paused(mode).await.map(drop)
    }

    /// Pauses, and tells the number of this pause.
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
        // While the scheduler is being replaced there is no answer, but there will be.
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

    /// Ends a pause, and a sleep. While memory is being released, it takes effect at the end of that.
    pub fn resume(&self) {
        self.set_pause(PauseState::Unpaused);
    }

    /// What is held back, by the last order.
    #[must_use]
    pub fn pause_state(&self) -> PauseState {
        self.context().ground.hold.wanted()
    }

    /// Aborts every request that is open, and tells how many.
    pub fn abort_all(&self) -> usize {
        let open = self.context().ledger().open_requests();
        let count = open.len();
        self.abort(open);
        count
    }

    /// Pauses, and gives the memory of the KV cache back to the operating system. Requests that
    /// are kept are computed again when they go on.
    ///
    /// # Errors
    /// As [`System::pause`]; [`RequestError::Unavailable`] also when the executors cannot give
    /// memory back. The engine is paused then.
    pub async fn sleep(&self, mode: PauseMode) -> Result<(), RequestError> {
        let number = self.paused(mode).await?;
        let all = self.set_pause_if(PauseState::PausedAll, |latest| latest == number);
        let number = all.ok_or_else(superseded)?;
        // No step is being computed when this is answered, and no block holds anything.
        if !self.reset_prefix_cache(true).await? {
            let cause = "blocks of the KV cache are still in use".to_owned();
            return Err(RequestError::Unavailable(cause));
        }
        let mut release = Release::begin(self.context(), number).await?;
        blocking(move || release.carry_out()).await
    }

    /// Takes the memory again, and goes on.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when there is not enough of it: the engine sleeps on.
    pub async fn wake_up(&self) -> Result<(), RequestError> {
        // Taken while it is released, the memory would be needed twice.
        self.context().ground.hold.at_rest().await;
        let executors = Arc::clone(&self.context().vault.executors);
        blocking(move || executors.restore_kv_cache()).await?;
        self.resume();
        Ok(())
    }

    /// Whether the memory of the KV cache was given back.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.context().ground.hold.is_asleep()
    }
}

/// A release of the KV cache's memory. No step runs until it is dropped: a step would find the cache
/// neither full nor empty.
struct Release {
    context: Arc<Context>,
    is_released: bool,
}

impl Release {
    /// Begins one, unless the pause of this number was superseded.
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

    /// Releases gigabytes, so it takes a while.
    fn carry_out(&mut self) -> Result<(), ExecuteError> {
        self.context.vault.executors.release_kv_cache()?;
        self.is_released = true;
        Ok(())
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if self.context.ground.hold.end_release(self.is_released) {
            self.context.directory.scheduler.cast(SchedulerMessage::PauseChanged);
        }
    }
}

fn superseded() -> RequestError {
    RequestError::Unavailable("it was resumed, or paused anew, meanwhile".to_owned())
}

/// Taking and giving back gigabytes takes a while.
async fn blocking<E: std::fmt::Display + Send + 'static>(
    work: impl FnOnce() -> Result<(), E> + Send + 'static,
) -> Result<(), RequestError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| ActorError::Device(error.to_string()));
    done.and_then(|done| done.map_err(|error| ActorError::Device(error.to_string())))
        .map_err(unavailable)
}
