//! To the structured output actor: grammars to compile. Neither questions nor answers are numbered:
//! what became of a format is a fact, whoever asked and however often.

use std::sync::Arc;

use super::edge::{Edge, Letter, pings};
use crate::logic::structured_output::StructuredOutput;

/// Received by the structured output actor.
#[derive(Debug, Clone)]
pub enum StructuredOutputMessage {
    /// From the scheduler: requests wait for these. Said again now and then for those that were
    /// not answered, which also makes the actor look at its threads.
    Compile(Vec<Arc<StructuredOutput>>),
    /// From a thread: it is done with a job, whose outcome lies where the job was taken.
    JobEnded,
    /// From the watchdog.
    Ping,
}

impl Letter for StructuredOutputMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Compile(_) => Edge::SchedulerToStructuredOutput,
            Self::JobEnded => Edge::CompilerToStructuredOutput,
            Self::Ping => Edge::Timer,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
}
