//! Streams that are read as they come, whoever's turn it is to be shown: one that nobody reads is cut
//! off after a while.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::api::{ChoiceStream, OutputDelta};

/// What `choice` brings, and will bring, all of it kept. Dropping it aborts the choice.
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
