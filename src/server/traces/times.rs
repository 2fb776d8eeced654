//! The times of a request that its span tells.

use std::time::Duration;

/// The times of a request, from its arrival. All of several choices count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::server) struct RequestTimes {
    /// Until the choice that waited longest was first scheduled.
    pub(in crate::server) scheduled: Option<Duration>,
    /// Until the first token.
    pub(in crate::server) first_token: Option<Duration>,
    /// Until the last token so far.
    pub(in crate::server) last_token: Option<Duration>,
}

#[cfg(feature = "otlp")]
impl RequestTimes {
    /// Returns vLLM's attributes of these times, in seconds. An unknown time has none.
    pub(super) fn attributes(self) -> impl Iterator<Item = (&'static str, f64)> {
        let Self { scheduled, first_token, last_token } = self;
        let between = |from: Option<Duration>, to: Option<Duration>| {
            // A choice may have been scheduled after another one had its first token.
            from.zip(to).map(|(from, to)| to.saturating_sub(from))
        };
        let times = [
            ("gen_ai.latency.time_in_queue", scheduled),
            ("gen_ai.latency.time_to_first_token", first_token),
            ("gen_ai.latency.time_in_model_prefill", between(scheduled, first_token)),
            ("gen_ai.latency.time_in_model_decode", between(first_token, last_token)),
            ("gen_ai.latency.time_in_model_inference", between(scheduled, last_token)),
        ];
        times.into_iter().filter_map(|(name, time)| Some((name, time?.as_secs_f64())))
    }
}

#[cfg(all(test, feature = "otlp"))]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_one_another() {
        let at = |ms| Some(Duration::from_millis(ms));
        let times =
            RequestTimes { scheduled: at(500), first_token: at(1500), last_token: at(3500) };
        let attributes: Vec<_> = times.attributes().map(|(_, seconds)| seconds).collect();
        assert_eq!(attributes, [0.5, 1.5, 1.0, 2.0, 3.0]);
        let early = RequestTimes { scheduled: at(500), first_token: at(400), last_token: None };
        let attributes: Vec<_> = early.attributes().collect();
        assert_eq!(attributes[2], ("gen_ai.latency.time_in_model_prefill", 0.0));
        assert_eq!(attributes.len(), 3);
        assert_eq!(RequestTimes::default().attributes().count(), 0);
    }
}
