//! Waits for states and outputs, with limits. A test whose wait is too long fails and says what it
//! waited for.

use std::{fmt::Debug, time::Duration};

use playhouse_actors::system::{ChoiceStream, OutputDelta};
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for a state. It is far longer than any state needs, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest wait for the next output of a stream. Many failures may come before the output.
const STREAM_LIMIT: Duration = Duration::from_secs(240);

/// Looks again and again until the state is the awaited one, and returns it.
///
/// # Panics
/// After two minutes, with `what` was awaited and the last state.
pub(crate) async fn until<S: Debug>(
    what: &str,
    mut look: impl FnMut() -> S,
    is_awaited: impl Fn(&S) -> bool,
) -> S {
    let limit = Instant::now() + LIMIT;
    loop {
        let state = look();
        if is_awaited(&state) {
            return state;
        }
        assert!(Instant::now() < limit, "not within {LIMIT:?}: {what}; the last state: {state:?}");
        sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the next output of a stream after `text`, or `None` after its end.
///
/// # Panics
/// If none comes in time, with `text`.
#[allow(clippy::panic, reason = "a test that cannot go on has failed")]
pub(crate) async fn next(stream: &mut ChoiceStream, text: &str) -> Option<OutputDelta> {
    let next = timeout(STREAM_LIMIT, stream.next()).await;
    next.unwrap_or_else(|_| panic!("no output within {STREAM_LIMIT:?} after {text:?}"))
}
