//! Streams that are read as they arrive, even before they are shown. The engine aborts a stream
//! that is not read for a while.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::api::{ChoiceStream, OutputDelta};

/// Returns all deltas of `choice`, past and future, without a limit on their number. Dropping the
/// receiver aborts the choice.
pub(super) fn read_ahead(mut choice: ChoiceStream) -> UnboundedReceiver<OutputDelta> {
    #[allow(clippy::disallowed_methods, reason = "an output is bounded by its own max_tokens")]
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        loop {
            let delta = tokio::select! {
                delta = choice.next() => delta,
                () = sender.closed() => None,
            };
            let Some(delta) = delta else { return };
            if sender.send(delta).is_err() {
                return;
            }
        }
    });
    receiver
}
