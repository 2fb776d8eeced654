//! The figures of speculative decoding, from the server's metrics before and after the run.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value, json};

/// Guesses that a server verified.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DraftCounters {
    num_drafts: f64,
    num_draft_tokens: f64,
    num_accepted_tokens: f64,
    accepted_per_pos: BTreeMap<usize, f64>,
}

impl DraftCounters {
    /// Returns the counters in a server's metrics. Returns `None` if there are none.
    pub(super) fn parse(metrics: &str) -> Option<Self> {
        let mut counters = Self::default();
        let mut is_found = false;
        for line in metrics.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let Some((_, name)) = name.split_once(":spec_decode_num_") else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let counter = match name {
                "drafts_total" => &mut counters.num_drafts,
                "draft_tokens_total" => &mut counters.num_draft_tokens,
                "accepted_tokens_total" => &mut counters.num_accepted_tokens,
                "accepted_tokens_per_pos_total" => match position(labels) {
                    Some(position) => counters.accepted_per_pos.entry(position).or_default(),
                    None => continue,
                },
                _ => continue,
            };
            *counter += value;
            is_found = true;
        }
        is_found.then_some(counters)
    }

    /// Returns the guesses since `before`. Returns `None` if there were none.
    pub(super) fn since(&self, before: &Self) -> Option<Self> {
        let of = |position: &usize| before.accepted_per_pos.get(position).copied();
        let per_pos = self.accepted_per_pos.iter();
        let since = Self {
            num_drafts: self.num_drafts - before.num_drafts,
            num_draft_tokens: self.num_draft_tokens - before.num_draft_tokens,
            num_accepted_tokens: self.num_accepted_tokens - before.num_accepted_tokens,
            accepted_per_pos: per_pos
                .map(|(position, count)| (*position, count - of(position).unwrap_or_default()))
                .collect(),
        };
        (since.num_drafts > 0.0).then_some(since)
    }

    /// Returns the share of guesses that were right, in percent.
    fn rate(&self) -> f64 {
        100.0 * self.num_accepted_tokens / self.num_draft_tokens.max(1.0)
    }

    /// Returns the mean number of tokens of a step with guesses.
    fn length(&self) -> f64 {
        1.0 + self.num_accepted_tokens / self.num_drafts.max(1.0)
    }

    /// Returns the share of drafts whose guess at each place was right, up to the last right one.
    fn rates(&self) -> Vec<f64> {
        let rates = self.accepted_per_pos.values().map(|count| count / self.num_drafts.max(1.0));
        let mut rates: Vec<f64> = rates.collect();
        while rates.pop_if(|rate| *rate == 0.0).is_some() {}
        rates
    }

    /// Returns the lines of the table, as vLLM's client shows them.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{:-^50}\n", "Speculative Decoding");
        let mut line = |label: &str, value: String| {
            let _ = writeln!(text, "{label:<40} {value:<10}");
        };
        line("Acceptance rate (%):", format!("{:.2}", self.rate()));
        line("Acceptance length:", format!("{:.2}", self.length()));
        line("Drafts:", format!("{:.0}", self.num_drafts));
        line("Draft tokens:", format!("{:.0}", self.num_draft_tokens));
        line("Accepted tokens:", format!("{:.0}", self.num_accepted_tokens));
        line("Per-position acceptance (%):", String::new());
        for (position, rate) in self.rates().into_iter().enumerate() {
            line(&format!("  Position {position}:"), format!("{:.2}", 100.0 * rate));
        }
        text
    }

    /// Returns the fields of a saved result.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let fields = json!({
            "spec_decode_acceptance_rate": self.rate(),
            "spec_decode_acceptance_length": self.length(),
            "spec_decode_num_drafts": self.num_drafts,
            "spec_decode_draft_tokens": self.num_draft_tokens,
            "spec_decode_accepted_tokens": self.num_accepted_tokens,
            "spec_decode_per_position_acceptance_rates": self.rates(),
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

fn position(labels: &str) -> Option<usize> {
    let (_, after) = labels.split_once("position=\"")?;
    after.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# TYPE x:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine=\"0\"} 10
vllm:spec_decode_num_draft_tokens_total{engine=\"0\"} 30
vllm:spec_decode_num_accepted_tokens_total{engine=\"0\"} 5
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 5
";
    const AFTER: &str = "playhouse:spec_decode_num_drafts_total{engine=\"0\"} 20
playhouse:spec_decode_num_draft_tokens_total{engine=\"0\"} 60
playhouse:spec_decode_num_accepted_tokens_total{engine=\"0\"} 20
playhouse:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 14
playhouse:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"1\"} 6
playhouse:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"2\"} 0
";

    #[test]
    fn the_guesses_of_a_run_are_counted() {
        let [before, after] = [BEFORE, AFTER].map(|text| DraftCounters::parse(text).unwrap());
        let run = after.since(&before).unwrap();
        assert_eq!((run.rate(), run.length()), (50.0, 2.5));
        assert_eq!(run.rates(), [0.9, 0.6]);
        assert!(run.table().contains("  Position 1:                            60.00     \n"));
        assert_eq!(run.fields()["spec_decode_accepted_tokens"], 15.0);
        assert_eq!(after.since(&after), None);
    }

    #[test]
    fn a_server_without_guesses_has_none() {
        assert_eq!(DraftCounters::parse("vllm:num_requests_running 3\n"), None);
    }
}
