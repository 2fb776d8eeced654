//! Figures about the service of clients, computed from arrivals and strikes.

use std::{collections::BTreeMap, time::Duration};

use crate::api::RequestId;

/// An arrival of output at a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    pub(super) request: RequestId,
    /// Number of tokens of the request that the client has after this arrival.
    pub(super) position: usize,
}

/// One strike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strike {
    pub(super) at: Duration,
    /// Number of tokens that each open request had committed.
    pub(super) committed: BTreeMap<RequestId, usize>,
}

impl Strike {
    /// Returns whether the arrival holds a token that was committed after the strike.
    pub(super) fn is_outlived_by(&self, news: &Arrival) -> bool {
        match self.committed.get(&news.request) {
            Some(&committed) => news.position > committed,
            // The request began later, or had ended while its output was on the way to its client.
            None => {
                let newest = self.committed.last_key_value().map(|(request, _)| *request);
                Some(news.request) > newest
            }
        }
    }
}

/// Returns the times from each strike to the first token committed after it. Strikes without a
/// later token are left out.
pub(super) fn recoveries(streams: &[Vec<Arrival>], strikes: &[Strike]) -> Vec<Duration> {
    let mut arrivals: Vec<_> = streams.iter().flatten().collect();
    arrivals.sort_by_key(|news| news.at);
    let recovery = |strike: &Strike| {
        let later = arrivals.partition_point(|news| news.at <= strike.at);
        let first = arrivals[later..].iter().find(|news| strike.is_outlived_by(news))?;
        Some(first.at - strike.at)
    };
    strikes.iter().filter_map(recovery).collect()
}

/// Returns the largest gap of each strike. A gap is the time between two arrivals at one stream,
/// and belongs to the last strike before its end.
pub(super) fn largest_gaps(streams: &[Vec<Arrival>], strikes: &[Duration]) -> Vec<Duration> {
    let mut largest = vec![Duration::ZERO; strikes.len()];
    for (before, after) in gaps(streams) {
        let strike = strikes.partition_point(|&at| at < after);
        if let Some(index) = strike.checked_sub(1) {
            largest[index] = largest[index].max(after - before);
        }
    }
    largest
}

/// Returns the median time between two arrivals at one stream, which is the time of a step.
pub(super) fn step_time(streams: &[Vec<Arrival>]) -> Duration {
    median(gaps(streams).map(|(before, after)| after - before))
}

/// Returns the median, which is 0 for no durations.
pub(super) fn median(durations: impl IntoIterator<Item = Duration>) -> Duration {
    let mut sorted: Vec<_> = durations.into_iter().collect();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn gaps(streams: &[Vec<Arrival>]) -> impl Iterator<Item = (Duration, Duration)> {
    streams.iter().flat_map(|arrivals| arrivals.windows(2)).map(|pair| (pair[0].at, pair[1].at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn stream(request: u64, times: &[u64]) -> Vec<Arrival> {
        let request = RequestId(request);
        let news = |(at, position)| Arrival { at: ms(at), request, position };
        times.iter().copied().zip(1..).map(news).collect()
    }

    #[test]
    fn a_gap_belongs_to_the_strike_before_its_end() {
        let streams = [stream(1, &[10, 20, 50, 60]), stream(2, &[15, 18, 90])];
        assert_eq!(largest_gaps(&streams, &[ms(30), ms(70)]), [ms(30), ms(72)]);
        assert_eq!(step_time(&streams), ms(10));
    }

    #[test]
    fn recovery_counts_from_a_token_committed_afterwards() {
        let streams = [stream(1, &[10, 20, 50, 60]), stream(3, &[70])];
        let strike = |at, committed: &[(u64, usize)]| Strike {
            at: ms(at),
            committed: committed.iter().map(|&(id, n)| (RequestId(id), n)).collect(),
        };
        // The third token of request 1 was committed before the first strike and arrived after it.
        let strikes = [strike(30, &[(1, 3)]), strike(30, &[(1, 4), (2, 0)]), strike(65, &[(3, 1)])];
        assert_eq!(recoveries(&streams, &strikes), [ms(30), ms(40)]);
    }
}
