//! The times of one request, for answers that report them.

use std::time::{Duration, Instant};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{api::OutputDelta, server::traces::RequestTimes};

/// `metrics` of an answer, in vLLM's terms. All of several choices count. The wait in the queue and
/// the time to the first token are the longest that the client waited for them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub(in crate::server) struct RequestMetrics {
    /// From the time it was scheduled to the first token of any choice.
    pub(in crate::server) time_to_first_token_ms: Option<f64>,
    /// From the first token to the last.
    pub(in crate::server) generation_time_ms: Option<f64>,
    /// Until the choice that waited longest was first scheduled.
    queue_time_ms: Option<f64>,
    /// Mean time between two tokens of a choice.
    mean_itl_ms: Option<f64>,
    /// Tokens of all choices, divided by the time from being scheduled to the last token.
    tokens_per_second: Option<f64>,
}

/// Measures the times of choices.
#[derive(Debug)]
pub(in crate::server) struct Stopwatch {
    started: Instant,
    queue_time: Option<Duration>,
    num_tokens: usize,
    /// Times of each choice's first token and its latest.
    choices: Vec<Option<(Instant, Instant)>>,
}

impl Stopwatch {
    /// Returns a stopwatch for this many choices of a request that arrived at `started`.
    pub(in crate::server) fn new(started: Instant, num_choices: usize) -> Self {
        Self { started, queue_time: None, num_tokens: 0, choices: vec![None; num_choices] }
    }

    /// Records output of a choice.
    pub(in crate::server) fn note(&mut self, index: usize, delta: &OutputDelta, now: Instant) {
        let queue_time = delta.queue_time.map(Duration::from_micros);
        self.queue_time = self.queue_time.max(queue_time);
        if delta.tokens.is_empty() {
            return;
        }
        self.num_tokens += delta.tokens.len();
        let times = self.choices[index].get_or_insert((now, now));
        times.1 = now;
    }

    /// Returns the times since the request's arrival.
    pub(in crate::server) fn times(&self) -> RequestTimes {
        let since = |time: Instant| time.saturating_duration_since(self.started);
        let times = || self.choices.iter().flatten();
        RequestTimes {
            scheduled: self.queue_time,
            first_token: times().map(|(first, _)| since(*first)).min(),
            last_token: times().map(|(_, last)| since(*last)).max(),
        }
    }

    /// Returns the times so far, as answers report them.
    pub(in crate::server) fn metrics(&self) -> RequestMetrics {
        let times = || self.choices.iter().flatten();
        let first = times().map(|(first, _)| *first).min();
        let last = times().map(|(_, last)| *last).max();
        let scheduled = self.started + self.queue_time.unwrap_or_default();
        // A choice may have been scheduled after another one had its first token.
        let worked = |until: Instant| until.saturating_duration_since(scheduled);
        let gaps = self.num_tokens.saturating_sub(times().count());
        let generating: Duration = times().map(|(first, last)| last.duration_since(*first)).sum();
        let elapsed = last.map(worked).filter(|elapsed| !elapsed.is_zero());
        RequestMetrics {
            time_to_first_token_ms: first.map(worked).map(milliseconds),
            generation_time_ms: first.zip(last).map(|(first, last)| milliseconds(last - first)),
            queue_time_ms: self.queue_time.map(milliseconds),
            mean_itl_ms: (gaps > 0).then(|| milliseconds(generating) / gaps as f64),
            tokens_per_second: elapsed.map(|time| self.num_tokens as f64 / time.as_secs_f64()),
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::api::SampledToken;

    #[test]
    fn all_choices_count() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let token = SampledToken { token_id: 1, logprobs: None };
        let delta = |count, queue_time| OutputDelta {
            tokens: vec![token.clone(); count],
            queue_time,
            ..OutputDelta::default()
        };
        let mut watch = Stopwatch::new(start, 2);
        watch.note(0, &delta(0, Some(2_000)), at(5));
        watch.note(0, &delta(1, None), at(10));
        watch.note(1, &delta(1, Some(4_000)), at(20));
        watch.note(0, &delta(3, None), at(40));
        watch.note(1, &delta(1, None), at(50));
        let wanted = RequestMetrics {
            time_to_first_token_ms: Some(6.0),
            generation_time_ms: Some(40.0),
            queue_time_ms: Some(4.0),
            mean_itl_ms: Some(15.0),
            tokens_per_second: Some(6.0 / 0.046),
        };
        assert_eq!(watch.metrics(), wanted);
        let nothing = Stopwatch::new(start, 1).metrics();
        assert_eq!((nothing.mean_itl_ms, nothing.tokens_per_second), (None, None));
    }
}
