//! Measures how long a handler computes: the cost of a message without the time it waits.

use std::{
    future::poll_fn,
    pin::pin,
    time::{Duration, Instant},
};

/// Returns the result of `work`, the times when it began and ended, and how long it computed.
pub(crate) async fn profiled<T>(work: impl Future<Output = T>) -> (T, [Instant; 2], Duration) {
    let (begin, mut busy) = (Instant::now(), Duration::ZERO);
    let mut work = pin!(work);
    let outcome = poll_fn(|cx| {
        let polled = Instant::now();
        let progress = work.as_mut().poll(cx);
        busy += polled.elapsed();
        progress
    })
    .await;
    (outcome, [begin, Instant::now()], busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_spent_waiting_is_not_counted() {
        // The thread may lack a processor while it computes, but hardly for half of this.
        let wait = Duration::from_secs(1);
        let (outcome, [begin, end], busy) = profiled(async {
            tokio::time::sleep(wait).await;
            7
        })
        .await;
        assert_eq!(outcome, 7);
        assert!(end - begin >= wait && busy < wait / 2, "{busy:?} of {:?}", end - begin);
    }
}
