//! To the ledger: what was accepted, computed, delivered or given up.

use std::sync::Arc;

use ractor::RpcReplyPort;

use crate::{
    error::RequestError,
    logic::{
        ids::{Epoch, RequestId},
        outputs::Commit,
        request::{EngineRequest, FinishReason},
        scheduler::FirstScheduled,
    },
};

/// Received by the ledger.
#[derive(Debug)]
pub enum LedgerMessage {
    /// From the engine's door: take these on, all or none.
    Accept(Vec<Arc<EngineRequest>>, RpcReplyPort<Result<(), RequestError>>),
    /// From the scheduler: a step's tokens.
    Commit {
        /// The epoch they were computed in.
        epoch: Epoch,
        /// One for each request that got something.
        commits: Vec<Commit>,
    },
    /// From the scheduler: requests that left the queue for the first time.
    FirstScheduled(Vec<FirstScheduled>),
    /// From a detokenizer: the output is complete after `position` tokens, by a stop string.
    EndAt {
        /// The request.
        request: RequestId,
        /// Tokens that count.
        position: usize,
        /// Which stop string.
        reason: FinishReason,
    },
    /// From a client or the door: stop working on these.
    Abort(Vec<RequestId>),
    /// From a detokenizer or a streamer: it is new, its shard must be told everything.
    AttachEgress {
        /// Its shard.
        shard: usize,
    },
    /// From a streamer: the batch reached the clients' sinks.
    Delivered {
        /// Its shard.
        shard: usize,
        /// The incarnation that the batch was for.
        generation: u64,
        /// Requests whose end was delivered.
        ended: Vec<RequestId>,
    },
    /// From the core's supervisor: one of its actors is new, so a new epoch begins.
    CoreRestarted,
    /// From its own timer: look for batches that got lost.
    Tick,
    /// How many requests are open.
    Count(RpcReplyPort<usize>),
}
