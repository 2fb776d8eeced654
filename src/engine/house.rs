//! Looking in from outside.

use playhouse_actors::system::HouseView;

use super::Engine;

impl Engine {
    /// How everything stands now: actors, messages, queues, KV cache, counts. An actor that is dead or
    /// hangs is missing, and waited for no longer than a moment.
    pub async fn look(&self) -> HouseView {
        self.inner.system.look().await
    }

    /// Whether somebody looks again and again: then the steps of each request are noted for
    /// [`Engine::look`].
    pub fn set_watched(&self, is_watched: bool) {
        self.inner.system.set_watched(is_watched);
    }
}
