//! Aborts, pauses and sleep.

use playhouse_actors::{
    error::RequestError,
    logic::{request::ids::RequestId, scheduler::PauseState},
    system::PauseMode,
};

use super::Engine;

impl Engine {
    /// Aborts requests. Their streams end with finish reason `abort`.
    pub fn abort(&self, requests: Vec<RequestId>) {
        self.inner.system.abort(requests);
    }

    /// Aborts all open requests. Returns their number.
    pub fn abort_all(&self) -> usize {
        self.inner.system.abort_all()
    }

    /// Holds all requests back until [`Engine::resume`]. Completes when no request runs.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] if aborted requests do not end in time. The engine is paused
    /// nevertheless.
    pub async fn pause(&self, mode: PauseMode) -> Result<(), RequestError> {
        self.inner.system.pause(mode).await
    }

    /// Ends a pause or a sleep.
    pub fn resume(&self) {
        self.inner.system.resume();
    }

    /// Returns which requests are held back.
    #[must_use]
    pub fn pause_state(&self) -> PauseState {
        self.inner.system.pause_state()
    }

    /// Pauses, and returns the memory of the KV cache to the operating system.
    ///
    /// # Errors
    /// As [`Engine::pause`].
    pub async fn sleep(&self, mode: PauseMode) -> Result<(), RequestError> {
        self.inner.system.sleep(mode).await
    }

    /// Allocates the KV cache again, and resumes.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] if there is not enough memory. The engine then still sleeps.
    pub async fn wake_up(&self) -> Result<(), RequestError> {
        self.inner.system.wake_up().await
    }

    /// Returns whether the memory of the KV cache is released.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.inner.system.is_sleeping()
    }

    /// Forgets all cached prefixes. Returns `false` if running requests hold blocks.
    /// `reset_running_requests` preempts those requests first.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the core is being replaced.
    pub async fn reset_prefix_cache(
        &self,
        reset_running_requests: bool,
    ) -> Result<bool, RequestError> {
        self.inner.system.reset_prefix_cache(reset_running_requests).await
    }

    /// Forgets the embeddings of all images and sounds that no request needs now.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the core is being replaced.
    pub async fn reset_encoder_cache(&self) -> Result<(), RequestError> {
        self.inner.system.reset_encoder_cache().await
    }

    /// Sets which requests are held back.
    pub fn set_pause(&self, pause: PauseState) {
        self.inner.system.set_pause(pause);
    }
}
