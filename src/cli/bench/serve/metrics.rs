//! From the outcome of each request to the figures of vLLM's client, by its definitions. Times are
//! in seconds.

use crate::cli::bench::distribution::Distribution;

/// The outcome of one request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::cli::bench) struct RequestOutput {
    /// The error, if it failed.
    pub(in crate::cli::bench) error: Option<String>,
    /// Tokens of the prompt, as the server counted them. Without a count, this client's.
    pub(in crate::cli::bench) prompt_len: usize,
    /// Tokens of the output.
    pub(in crate::cli::bench) output_tokens: usize,
    /// Time of sending, since the benchmark's start.
    pub(in crate::cli::bench) start_time: f64,
    /// Time from sending to the first piece of output.
    pub(in crate::cli::bench) ttft: f64,
    /// Times between one piece and the next.
    pub(in crate::cli::bench) itl: Vec<f64>,
    /// Time from sending to the last piece.
    pub(in crate::cli::bench) latency: f64,
    /// Time that it waited for the end of other requests before it was sent.
    pub(in crate::cli::bench) client_queue_time: f64,
    pub(in crate::cli::bench) generated_text: String,
}

impl RequestOutput {
    /// Returns the time per output token after the first, or 0 if there is none.
    fn tpot(&self) -> f64 {
        match self.output_tokens {
            0 | 1 => 0.0,
            tokens => (self.latency - self.ttft) / (tokens - 1) as f64,
        }
    }
}

/// The limits of a good request, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Goodput {
    pub(super) ttft_ms: Option<f64>,
    pub(super) tpot_ms: Option<f64>,
    pub(super) e2el_ms: Option<f64>,
}

impl Goodput {
    /// Parses pairs, for example `ttft:500`.
    pub(super) fn parse(pairs: &[String]) -> Result<Self, String> {
        let mut goodput = Self::default();
        for pair in pairs {
            let wrong =
                || format!("--goodput: {pair:?} is no objective; give ttft:MS, tpot:MS or e2el:MS");
            let (name, value) = pair.split_once(':').ok_or_else(wrong)?;
            let value = value.parse().ok().filter(|ms: &f64| *ms >= 0.0).ok_or_else(wrong)?;
            match name {
                "ttft" => goodput.ttft_ms = Some(value),
                "tpot" => goodput.tpot_ms = Some(value),
                "e2el" => goodput.e2el_ms = Some(value),
                _ => return Err(wrong()),
            }
        }
        Ok(goodput)
    }

    pub(super) fn is_wanted(&self) -> bool {
        *self != Self::default()
    }

    fn is_met(&self, output: &RequestOutput) -> bool {
        let keeps = |limit_ms: Option<f64>, s: f64| limit_ms.is_none_or(|limit| s * 1e3 <= limit);
        keeps(self.ttft_ms, output.ttft)
            && keeps(self.tpot_ms, output.tpot())
            && keeps(self.e2el_ms, output.latency)
    }
}

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Metrics {
    pub(super) duration: f64,
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) total_input: usize,
    pub(super) total_output: usize,
    /// Requests a second that met all objectives, if there are any.
    pub(super) request_goodput: Option<f64>,
    pub(super) ttft: Distribution,
    pub(super) tpot: Distribution,
    pub(super) itl: Distribution,
    pub(super) e2el: Distribution,
    pub(super) client_queue_time: Distribution,
    /// Most pieces of output in one second.
    pub(super) max_output_tokens_per_s: f64,
    /// Most requests open at a time.
    pub(super) max_concurrent_requests: usize,
}

impl Metrics {
    /// Returns the figures of a run that took `duration`.
    pub(super) fn of(outputs: &[RequestOutput], duration: f64, goodput: &Goodput) -> Self {
        let done = || outputs.iter().filter(|output| output.error.is_none());
        let good = done().filter(|output| goodput.is_met(output)).count();
        let milliseconds = |values: &mut dyn Iterator<Item = f64>| {
            Distribution::of(values.map(|seconds| seconds * 1e3))
        };
        let with_tpot = || done().filter(|output| output.output_tokens > 1);
        Self {
            duration,
            completed: done().count(),
            failed: outputs.len() - done().count(),
            total_input: done().map(|output| output.prompt_len).sum(),
            total_output: done().map(|output| output.output_tokens).sum(),
            request_goodput: goodput.is_wanted().then_some(good as f64 / duration),
            ttft: milliseconds(&mut done().map(|output| output.ttft)),
            tpot: milliseconds(&mut with_tpot().map(RequestOutput::tpot)),
            itl: milliseconds(&mut done().flat_map(|output| output.itl.iter().copied())),
            e2el: milliseconds(&mut done().map(|output| output.latency)),
            client_queue_time: milliseconds(&mut done().map(|output| output.client_queue_time)),
            max_output_tokens_per_s: busiest_second(done()) as f64,
            max_concurrent_requests: most_at_once(done()),
        }
    }

    pub(super) fn request_throughput(&self) -> f64 {
        self.completed as f64 / self.duration
    }

    pub(super) fn output_throughput(&self) -> f64 {
        self.total_output as f64 / self.duration
    }

    pub(super) fn total_token_throughput(&self) -> f64 {
        (self.total_input + self.total_output) as f64 / self.duration
    }
}

/// Returns the most pieces in one second, with seconds counted from the first request's start.
fn busiest_second<'a>(outputs: impl Iterator<Item = &'a RequestOutput> + Clone) -> usize {
    let start = outputs.clone().map(|output| output.start_time).fold(f64::INFINITY, f64::min);
    let mut seconds: Vec<usize> = Vec::new();
    for output in outputs {
        let mut at = output.start_time - start + output.ttft;
        for gap in std::iter::once(0.0).chain(output.itl.iter().copied()) {
            at += gap;
            let second = at as usize;
            if seconds.len() <= second {
                seconds.resize(second + 1, 0);
            }
            seconds[second] += 1;
        }
    }
    seconds.into_iter().max().unwrap_or_default()
}

/// Returns the most requests open at a time. A request that ends as another begins does not overlap
/// it.
fn most_at_once<'a>(outputs: impl Iterator<Item = &'a RequestOutput>) -> usize {
    let ends = |o: &RequestOutput| [(o.start_time, 1_i64), (o.start_time + o.latency, -1)];
    let mut events: Vec<_> = outputs.flat_map(ends).collect();
    events.sort_by(|(a, x), (b, y)| a.total_cmp(b).then(x.cmp(y)));
    let (mut open, mut most) = (0, 0);
    for (_, change) in events {
        open += change;
        most = most.max(open);
    }
    usize::try_from(most).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(start_time: f64, ttft: f64, itl: &[f64]) -> RequestOutput {
        RequestOutput {
            prompt_len: 10,
            output_tokens: 1 + itl.len(),
            start_time,
            ttft,
            itl: itl.to_vec(),
            latency: ttft + itl.iter().sum::<f64>(),
            ..RequestOutput::default()
        }
    }

    #[test]
    fn figures_follow_vllms_definitions() {
        let failed = RequestOutput { error: Some("500".to_owned()), ..output(0.0, 9.0, &[9.0]) };
        let outputs = [
            output(0.0, 0.5, &[0.1, 0.3]),
            output(0.2, 0.1, &[]),
            // It begins in the instant in which the first ends.
            output(0.9, 0.2, &[0.2, 0.2]),
            failed,
        ];
        let goodput = Goodput::parse(&["ttft:200.5".to_owned(), "tpot:210".to_owned()]).unwrap();
        let metrics = Metrics::of(&outputs, 2.0, &goodput);
        assert_eq!((metrics.completed, metrics.failed), (3, 1));
        assert_eq!((metrics.total_input, metrics.total_output), (30, 7));
        assert_eq!((metrics.request_throughput(), metrics.output_throughput()), (1.5, 3.5));
        assert_eq!(metrics.total_token_throughput(), 18.5);
        // (0.9 - 0.5) / 2 and (0.6 - 0.2) / 2. A single token has no time per output token.
        assert!((metrics.tpot.mean() - 200.0).abs() < 1e-9, "{:?}", metrics.tpot);
        assert!((metrics.itl.mean() - 200.0).abs() < 1e-9);
        assert!((metrics.ttft.median() - 200.0).abs() < 1e-9);
        // The first token of the first is too late. The second request has no second token, which
        // is good.
        assert_eq!(metrics.request_goodput, Some(1.0));
        // Of seconds [0, 1): 0.3, 0.5, 0.6, 0.9; of [1, 2): 1.1, 1.3, 1.5.
        assert_eq!(metrics.max_output_tokens_per_s, 4.0);
        assert_eq!(metrics.max_concurrent_requests, 2);
    }

    #[test]
    fn no_measurements_have_figures_too() {
        let metrics = Metrics::of(&[], 1.0, &Goodput::default());
        assert_eq!((metrics.completed, metrics.request_goodput), (0, None));
        assert_eq!((metrics.ttft.mean(), metrics.max_concurrent_requests), (0.0, 0));
    }

    #[test]
    fn objectives_are_named_and_have_numbers() {
        for wrong in ["ttft", "ttft:x", "ttft:-1", "itl:5"] {
            let message = Goodput::parse(&[wrong.to_owned()]).unwrap_err();
            assert!(message.contains(&format!("{wrong:?} is no objective")), "{message}");
        }
    }
}
