//! Messages to the encoder worker: items to encode, and news from its device thread.

use super::edge::{Edge, Letter, edge, pings};
use crate::{
    logic::{encoder_cache::EncoderBatch, request::failure::Failure},
    ports::ExecuteError,
};

/// A message that the encoder worker receives.
#[derive(Debug)]
pub enum EncoderWorkerMessage {
    /// From the encoder cache manager: encode these items. The manager repeats the message from
    /// time to time until it gets the result.
    Encode(EncoderBatch),
    /// From a device thread: the end of a job.
    JobEnded {
        /// The number of the worker's thread that sends this.
        thread: u64,
        /// The job. A report that comes twice must not end the next one.
        job: u64,
        /// The end of the job.
        outcome: EncoderOutcome,
    },
    /// From the worker's own timer: the deadline of this job has passed.
    Deadline {
        /// The number of the thread that has the job.
        thread: u64,
        /// The job.
        job: u64,
    },
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

/// The end of a job on the encoder's device thread. After a failure the thread ends.
#[derive(Debug, Clone, PartialEq)]
pub enum EncoderOutcome {
    /// The end of each item.
    Done(Vec<Result<(), Failure>>),
    /// All items failed together.
    Failed(ExecuteError),
}

impl Letter for EncoderWorkerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Encode(_) => edge!(EncoderCacheManager -> EncoderWorker),
            Self::JobEnded { .. } => edge!(Device -> EncoderWorker),
            Self::Deadline { .. } | Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            Self::Encode(batch) => Self::Encode(batch.clone()),
            Self::JobEnded { thread, job, outcome } => {
                Self::JobEnded { thread: *thread, job: *job, outcome: outcome.clone() }
            }
            &Self::Deadline { thread, job } => Self::Deadline { thread, job },
            Self::Ping => Self::Ping,
        })
    }
}
