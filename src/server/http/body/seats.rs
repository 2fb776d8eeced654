//! Limits how many bodies of one connection wait for memory. A body that is not read fills the flow
//! control window of its HTTP/2 connection. With a full window, no other request of the connection
//! could send its body.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::Semaphore;

use crate::server::http::error::ApiError;

/// The time after which a rejected request may try again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The seats of one connection; cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::server) struct WaitingSeats {
    count: usize,
    free: Arc<Semaphore>,
}

impl WaitingSeats {
    /// Returns seats for `count` bodies.
    pub(in crate::server) fn new(count: usize) -> Self {
        Self { count, free: Arc::new(Semaphore::new(count)) }
    }

    /// Completes as `wish` for memory does. The body holds a seat while it waits.
    ///
    /// # Errors
    /// 503 if it would wait and all seats are taken.
    pub(super) async fn hold<T>(
        &self,
        wish: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let mut wish = pin!(wish);
        if let Some(done) = wish.as_mut().now_or_never() {
            return done;
        }
        let Ok(_seat) = self.free.try_acquire() else {
            let message = format!(
                "the memory for requests is in use, and {} bodies of this connection wait for it \
                 already: more would keep its other requests from sending theirs",
                self.count
            );
            return Err(ApiError::unavailable(message, RETRY_AFTER));
        };
        wish.await
    }
}

impl Default for WaitingSeats {
    /// Returns the seats of a request that shares its connection with no other.
    fn default() -> Self {
        Self::new(1)
    }
}
