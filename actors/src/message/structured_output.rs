//! Messages to the structured output actor: grammars to compile. Neither questions nor answers are
//! numbered, because the result for a format is always the same. It does not depend on the sender
//! or on the number of questions.

use std::sync::Arc;

use super::edge::{Edge, Letter, edge, pings};
use crate::logic::request::structured_output::StructuredOutput;

/// A message that the structured output actor receives.
#[derive(Debug, Clone)]
pub enum StructuredOutputMessage {
    /// From the scheduler: requests wait for these grammars. The scheduler repeats the message from
    /// time to time for grammars without an answer. Each message also makes the actor check its
    /// threads.
    Compile(Vec<Arc<StructuredOutput>>),
    /// From a thread: it has finished a job. The result lies in the place that the job came from.
    JobEnded,
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

impl Letter for StructuredOutputMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Compile(_) => edge!(Scheduler -> StructuredOutput),
            Self::JobEnded => edge!(Compiler -> StructuredOutput),
            Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
}
