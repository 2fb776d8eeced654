//! The outcome of a replay.

use serde_json::json;

use crate::{
    api::recording::{Event, hash, schedule_hash},
    cli::{
        CliError,
        output::{self, Format},
    },
};

/// The outcome of a replay without a difference.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) num_requests: usize,
    pub(super) num_steps: usize,
    /// Number of tokens in results.
    num_tokens: usize,
    /// The hash of all plans.
    schedule: u64,
    /// Whether a model computed the results again.
    pub(super) has_model: bool,
    /// How the recording ends, in words.
    pub(super) end: String,
}

impl Outcome {
    /// Takes an event over.
    pub(super) fn add(&mut self, event: &Event) {
        match event {
            Event::Planned(planned) => {
                self.schedule = hash(&(self.schedule, schedule_hash(planned)));
            }
            Event::Done { rows, .. } => {
                self.num_tokens += rows.iter().map(|row| row.tokens().len()).sum::<usize>();
            }
            Event::Input | Event::Stopped(_) => {}
        }
    }

    /// Prints the outcome.
    pub(super) fn show(&self, format: Format) -> Result<(), CliError> {
        let Self { num_requests, num_steps, num_tokens, schedule, has_model, end } = self;
        let equal = match has_model {
            true => "all equal",
            false => "the schedule is equal",
        };
        match format {
            Format::Text => output::show(&format!(
                "{num_requests} requests, {num_steps} steps, {num_tokens} tokens: {equal}\n\
                 schedule {schedule:016x}\nend of the recording: {end}\n"
            )),
            Format::Json => output::show_json(&json!({
                "requests": num_requests,
                "steps": num_steps,
                "tokens": num_tokens,
                "schedule": format!("{schedule:016x}"),
                "tokens_compared": has_model,
                "equal": true,
                "end": end,
            })),
        }
    }
}
