//! Responses that run without their clients.

use std::{sync::Arc, time::Duration};

use super::{
    events::Frames, response::Status, store::ResponseStore, stored::Stored, writer::ResponseRun,
};
use crate::server::http::error::ApiError;

/// Time after which a client may ask again for a response that had no room.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Runs `run` to its end, or until it is cancelled. Writes its progress to `stored`.
pub(super) fn start(store: &Arc<ResponseStore>, mut run: ResponseRun, stored: Arc<Stored>) {
    let mut frames = Frames::default();
    let begun = frames.write_all(&run.writer.begin());
    stored.update(None, begun);
    let unfinished = Unfinished { stored, store: store.clone() };
    store.spawn(async move {
        let Unfinished { stored, store } = &unfinished;
        loop {
            let before = run.writer.response.status;
            let events = tokio::select! {
                biased;
                () = stored.cancelled() => Some(run.cancel()),
                events = run.next() => events,
            };
            let Some(events) = events else { return };
            let response = &run.writer.response;
            let changed = (response.status != before).then_some(response);
            stored.update(changed, frames.write_all(&events));
            if !store.has_room() && !run.writer.response.status.is_over() {
                let last = frames.write_all(&run.fail(no_room()));
                stored.update(Some(&run.writer.response), last);
            }
            if run.writer.response.status.is_over() {
                return;
            }
        }
    });
}

fn no_room() -> ApiError {
    let message = "the store of responses is full, and there is no room for what this one grew by";
    ApiError::unavailable(message.to_owned(), RETRY_AFTER)
}

/// Ends the response on drop, if the task ended without that. Otherwise clients would wait for it
/// for ever.
struct Unfinished {
    stored: Arc<Stored>,
    store: Arc<ResponseStore>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.stored.is_over() {
            let mut response = self.stored.response();
            response.end(Status::Cancelled, Vec::new(), None);
            self.stored.update(Some(&response), Vec::new());
        }
        self.store.make_room();
    }
}
