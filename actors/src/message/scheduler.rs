//! Messages to the scheduler: requests, results, and orders from the operator.

use std::{collections::BTreeSet, sync::Arc};

use ractor::RpcReplyPort;
use serde::{Deserialize, Serialize};

use super::edge::{Edge, Letter, edge, pings};
use crate::logic::{
    encoder_cache::EncoderAnswer,
    ledger::Restriction,
    recovery::message_numbers::Stamp,
    request::{
        EngineRequest,
        failure::Failure,
        ids::{Epoch, RequestId, Step},
        outputs::StepOutput,
        structured_output::StructuredOutput,
    },
    scheduler::{RecoveredRequest, SchedulerStats, SchedulerView},
};

/// A message that the scheduler receives.
#[derive(Debug)]
pub enum SchedulerMessage {
    /// From the ledger: the next order of this epoch.
    Order(Stamp, SchedulerOrder),
    /// From the ledger, from time to time: the number of orders sent. It shows the scheduler that
    /// an order was lost.
    Given(Stamp),
    /// From the ledger: a new epoch begins. Forget everything and schedule these requests.
    Recover {
        /// The new epoch.
        epoch: Epoch,
        /// All live requests.
        live: Vec<RecoveredRequest>,
        /// Those of them that another engine may have had before. Tails of theirs are too old.
        newcomers: BTreeSet<RequestId>,
        /// The limits on scheduling: allowed requests, and tokens a step.
        restriction: Restriction,
    },
    /// From the worker: the output of a step.
    StepDone(StepOutput),
    /// From the worker, as the answer to a question about a step: the step is not running. If it
    /// was computed, its output has been sent already.
    StepMissing {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
    },
    /// From the structured output actor: results of compiling grammars.
    GrammarsCompiled(Vec<CompiledGrammar>),
    /// From the encoder cache manager: the state of images and sounds.
    Encoded(EncoderAnswer),
    /// From a thread: an adapter was loaded, or it failed. If the message is lost, the tick takes
    /// its place.
    AdapterLoaded,
    /// From the operator: the pause state in the context has changed.
    PauseChanged,
    /// From the operator: forget all cached prefixes. The reply says whether that was possible.
    ResetPrefixCache {
        /// Whether to preempt running requests, which makes it possible.
        reset_running_requests: bool,
        /// The port for the reply.
        reply: RpcReplyPort<bool>,
    },
    /// From the operator: return the scheduler's statistics.
    Stats(RpcReplyPort<SchedulerStats>),
    /// From an observer outside the engine: return the scheduler's state, with its requests.
    View {
        /// Largest number of running requests in the reply. The same limit holds for waiting
        /// requests.
        most: usize,
        /// The port for the reply.
        reply: RpcReplyPort<SchedulerView>,
    },
    /// From the scheduler's own timer.
    Tick,
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

/// An output format and the result of compiling its grammar.
pub type CompiledGrammar = (Arc<StructuredOutput>, Result<(), Failure>);

/// An order of the ledger about its requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SchedulerOrder {
    /// Schedule these requests, which are newly accepted.
    Add(Vec<Arc<EngineRequest>>),
    /// Stop these requests.
    Abort(Vec<RequestId>),
    /// Keep to these limits from now on.
    Restrict(Restriction),
}

impl Letter for SchedulerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Order(..) | Self::Given(_) | Self::Recover { .. } => edge!(Ledger -> Scheduler),
            Self::StepDone(_) | Self::StepMissing { .. } => edge!(Worker -> Scheduler),
            Self::GrammarsCompiled(_) => edge!(StructuredOutput -> Scheduler),
            Self::Encoded(_) => edge!(EncoderCacheManager -> Scheduler),
            Self::PauseChanged | Self::ResetPrefixCache { .. } | Self::Stats(_) => {
                edge!(Door -> Scheduler)
            }
            Self::AdapterLoaded | Self::View { .. } | Self::Tick | Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            Self::Order(stamp, order) => Self::Order(*stamp, order.clone()),
            Self::Given(stamp) => Self::Given(*stamp),
            Self::Recover { epoch, live, newcomers, restriction } => Self::Recover {
                epoch: *epoch,
                live: live.clone(),
                newcomers: newcomers.clone(),
                restriction: restriction.clone(),
            },
            Self::StepDone(output) => Self::StepDone(output.clone()),
            &Self::StepMissing { epoch, step } => Self::StepMissing { epoch, step },
            Self::GrammarsCompiled(compiled) => Self::GrammarsCompiled(compiled.clone()),
            Self::Encoded(answer) => Self::Encoded(answer.clone()),
            Self::AdapterLoaded => Self::AdapterLoaded,
            Self::PauseChanged => Self::PauseChanged,
            Self::Tick => Self::Tick,
            Self::Ping => Self::Ping,
            Self::ResetPrefixCache { .. } | Self::Stats(_) | Self::View { .. } => return None,
        })
    }
}
