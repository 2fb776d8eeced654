//! The metrics of guesses: vLLM's `spec_decode_*`.

use metrics::{Counter, Label, counter};

use crate::logic::request::outputs::DraftCounts;

/// The counters of one actor system.
#[derive(Debug)]
pub(crate) struct DraftMetrics {
    num_drafts: Counter,
    num_draft_tokens: Counter,
    num_accepted_tokens: Counter,
    /// Accepted tokens by their place among the guesses, from 0.
    num_accepted_tokens_per_pos: Vec<Counter>,
}

impl DraftMetrics {
    /// Returns counters for steps of at most `num_positions` guesses.
    pub(super) fn new(labels: &[Label], num_positions: usize) -> Self {
        let name = "playhouse:spec_decode_num_accepted_tokens_per_pos_total";
        let by_position = |position: usize| {
            let label = Label::new("position", position.to_string());
            let labels: Vec<Label> = labels.iter().cloned().chain([label]).collect();
            // A counter that is not incremented is not exported.
            let counter = counter!(name, labels);
            counter.increment(0);
            counter
        };
        Self {
            num_drafts: counter!("playhouse:spec_decode_num_drafts_total", labels.iter()),
            num_draft_tokens: counter!(
                "playhouse:spec_decode_num_draft_tokens_total",
                labels.iter()
            ),
            num_accepted_tokens: counter!(
                "playhouse:spec_decode_num_accepted_tokens_total",
                labels.iter()
            ),
            num_accepted_tokens_per_pos: (0..num_positions.max(1)).map(by_position).collect(),
        }
    }

    /// Counts the guesses that a step verified.
    pub(crate) fn count(&self, drafts: &[DraftCounts]) {
        for &DraftCounts { num_drafted, num_accepted, .. } in drafts {
            self.num_drafts.increment(1);
            self.num_draft_tokens.increment(u64::from(num_drafted));
            self.num_accepted_tokens.increment(u64::from(num_accepted));
            let accepted = self.num_accepted_tokens_per_pos.iter().take(num_accepted as usize);
            accepted.for_each(|counter| counter.increment(1));
        }
    }
}
