//! Views of the running engine, for the page.

use playhouse_actors::{logic::encoder_cache::EncoderCacheView, system::SystemView};

use super::Engine;

impl Engine {
    /// Returns a snapshot of the engine: actors, messages, queues, KV cache, counts. It waits for
    /// each actor only briefly, so an actor that is dead or hangs is missing.
    pub async fn look(&self) -> SystemView {
        self.inner.system.look().await
    }

    /// Returns the figures of the encoder cache of each engine, by its index. `None` if the model
    /// takes no images and sounds, or the cache's manager is dead or hangs.
    pub async fn encoder_caches(&self) -> Vec<Option<EncoderCacheView>> {
        self.inner.system.encoder_caches().await
    }

    /// Sets whether a client calls [`Engine::look`] again and again. While it does, the steps of
    /// each request are recorded for it.
    pub fn set_watched(&self, is_watched: bool) {
        self.inner.system.set_watched(is_watched);
    }
}
