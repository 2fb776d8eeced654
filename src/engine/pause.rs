//! Holding the engine back.

use playhouse_actors::{
    error::RequestError,
    logic::{request::ids::RequestId, scheduler::PauseState},
    system::PauseMode,
};

use super::Engine;

impl Engine {
    /// Stops working on requests; their streams end with finish reason `abort`.
    pub fn abort(&self, requests: Vec<RequestId>) {
        self.inner.system.abort(requests);
    }

    /// The same for all that are open; tells how many they are.
    pub fn abort_all(&self) -> usize {
        self.inner.system.abort_all()
    }

    /// Holds all requests back until [`Engine::resume`]. Completes when nothing runs any more.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when aborted requests do not leave: the engine is paused then.
    pub async fn pause(&self, mode: PauseMode) -> Result<(), RequestError> {
        self.inner.system.pause(mode).await
    }

    /// Ends a pause, and a sleep.
    pub fn resume(&self) {
        self.inner.system.resume();
    }

    /// What is held back.
    #[must_use]
    pub fn pause_state(&self) -> PauseState {
        self.inner.system.pause_state()
    }

    /// Pauses, and gives the memory of the KV cache back to the operating system.
    ///
    /// # Errors
    /// As [`Engine::pause`].
    pub async fn sleep(&self, mode: PauseMode) -> Result<(), RequestError> {
        self.inner.system.sleep(mode).await
    }

    /// Takes the memory again, and goes on.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when there is not enough of it: the engine sleeps on.
    pub async fn wake_up(&self) -> Result<(), RequestError> {
        self.inner.system.wake_up().await
    }

    /// Whether the memory of the KV cache was given back.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.inner.system.is_sleeping()
    }

    /// Forgets all cached prefixes. `false` when running requests hold blocks, unless those are to
    /// be preempted.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the core is being replaced.
    pub async fn reset_prefix_cache(
        &self,
        reset_running_requests: bool,
    ) -> Result<bool, RequestError> {
        self.inner.system.reset_prefix_cache(reset_running_requests).await
    }

    /// Holds back new requests, or all.
    pub fn set_pause(&self, pause: PauseState) {
        self.inner.system.set_pause(pause);
    }
}
