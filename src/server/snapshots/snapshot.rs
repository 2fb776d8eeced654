//! A snapshot as clients read it. Times are milliseconds. Counts begin at the start of the engine.

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Tenant;

/// The holder of a block without one, or with one that the reader must not know. Request 0 has the
/// same id.
pub(super) const NO_REQUEST: u64 = 0;

/// The state of the engine at one time.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = HouseSnapshot)]
pub(in crate::server) struct EngineSnapshot {
    /// Number of the snapshot. All watchers get the same ones.
    pub(super) seq: u64,
    /// Time since the start of the engine.
    pub(super) at_ms: u64,
    /// `starting`, `ready`, `recovering`, `draining` or `dead`.
    pub(super) health: &'static str,
    /// Number of restarts of the core.
    pub(super) epoch: u64,
    /// Whether the server has `/chaos/*`.
    pub(super) has_chaos: bool,
    /// Accepted requests whose end was not delivered.
    pub(super) open_requests: usize,
    pub(super) model: ModelFacts,
    /// Every actor, supervisors first.
    pub(super) actors: Vec<ActorFacts>,
    pub(super) edges: Vec<EdgeFacts>,
    pub(super) totals: TotalFacts,
    /// Time from acceptance to the first token, of requests that got it since the last snapshot.
    pub(super) time_to_first_token: LatencyFacts,
    /// Time from one token to the next, of the tokens since the last snapshot.
    pub(super) inter_token_latency: LatencyFacts,
    /// The engines: one, unless `data_parallel_size` asks for more.
    pub(super) engines: Vec<EngineFacts>,
}

/// One engine.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct EngineFacts {
    /// `null` before the scheduler has answered for the first time.
    pub(super) scheduler: Option<SchedulerFacts>,
    /// `null` before the first step.
    pub(super) kv_cache: Option<KvCacheFacts>,
    /// `null` for a model without images and sounds.
    pub(super) encoder_cache: Option<EncoderCacheFacts>,
    /// The requests' parts in the last steps, while `/house/events` has a watcher.
    pub(super) timelines: Vec<TimelineFacts>,
    /// The epochs of these steps: `[first step, epoch]`.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub(super) epochs: Vec<[u64; 2]>,
}

impl EngineSnapshot {
    /// Returns the part that a client may see. Of other tenants' requests it keeps only their share
    /// in the counts, and that their blocks are in use.
    pub(super) fn seen_by(&self, tenant: Tenant) -> Self {
        let mut seen = self.clone();
        seen.engines.iter_mut().for_each(|engine| engine.hide_others(tenant));
        seen
    }
}

impl EngineFacts {
    fn hide_others(&mut self, tenant: Tenant) {
        let is_own = |owner: Option<Tenant>| owner == Some(tenant);
        let mut own = BTreeSet::new();
        self.timelines.retain(|timeline| is_own(timeline.tenant));
        own.extend(self.timelines.iter().map(|timeline| timeline.id));
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.requests.retain(|request| is_own(request.tenant));
            own.extend(scheduler.requests.iter().map(|request| request.id));
        }
        for [_, _, owner, _] in self.kv_cache.iter_mut().flat_map(|cache| &mut cache.runs) {
            if !own.contains(owner) {
                *owner = NO_REQUEST;
            }
        }
    }
}

/// The facts that do not change.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ModelFacts {
    pub(super) name: String,
    pub(super) max_model_len: usize,
    /// Tokens in a block of the KV cache.
    pub(super) block_size: usize,
    /// Most requests that run at the same time.
    pub(super) max_num_seqs: usize,
    /// Most tokens in a step.
    pub(super) max_num_batched_tokens: usize,
    /// Whether it generates text.
    pub(super) generates: bool,
    /// Whether it scores pairs of texts, so that `/rerank` exists.
    pub(super) compares: bool,
}

/// One actor.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ActorFacts {
    pub(super) role: &'static str,
    /// Index among the actors with the same role.
    pub(super) index: usize,
    /// The role of its supervisor; `null` for the root.
    pub(super) parent: Option<&'static str>,
    /// `alive` or `dead`.
    pub(super) state: &'static str,
    /// Number of its restarts.
    pub(super) restarts: u64,
    /// Messages sent to it that it has not begun to handle.
    pub(super) mailbox_depth: u64,
    /// Time since it last began a message. The watchdog's pings count.
    pub(super) heartbeat_age_ms: u64,
    /// Time that it has worked on its current message, if it has one.
    pub(super) busy_ms: Option<u64>,
}

/// Messages from one role to another.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct EdgeFacts {
    /// `sender->receiver`, as `/chaos/edges` names it.
    pub(super) edge: &'static str,
    /// Messages handled.
    pub(super) messages: u64,
}

/// Counts since the start of the engine.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TotalFacts {
    /// Steps that compute tokens.
    pub(super) steps: u64,
    /// Tokens computed in these steps.
    pub(super) scheduled_tokens: u64,
    /// Of these, prompt tokens computed for the first time.
    pub(super) prompt_tokens: u64,
    /// Of these, tokens recomputed after a preemption or a new epoch.
    pub(super) recomputed_tokens: u64,
    /// Committed output tokens.
    pub(super) output_tokens: u64,
    /// Tokens looked up in the prefix cache.
    pub(super) prefix_cache_queries: u64,
    /// Of these, tokens that were found.
    pub(super) prefix_cache_hits: u64,
    pub(super) preemptions: u64,
    pub(super) finished_requests: u64,
}

/// Durations of one kind. Quantiles are `null` if there were none.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct LatencyFacts {
    pub(super) count: u64,
    pub(super) mean_ms: Option<f64>,
    /// The median, within a sixteenth.
    pub(super) p50_ms: Option<f64>,
    /// The 99th percentile, within a sixteenth.
    pub(super) p99_ms: Option<f64>,
}

/// The scheduler as it last answered.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct SchedulerFacts {
    /// Time since that answer: more than zero while it is dead or hangs.
    pub(super) age_ms: u64,
    pub(super) epoch: u64,
    /// Steps planned.
    pub(super) step: u64,
    pub(super) num_running: usize,
    /// Waiting requests, with those that wait for a grammar.
    pub(super) num_waiting: usize,
    /// `unpaused`, `paused_new` or `paused_all`.
    #[schema(value_type = String)]
    pub(super) pause: serde_json::Value,
    /// Running requests first, then waiting ones in the order of service. At most 128 of each. With
    /// a client's key, these are the client's own among them.
    pub(super) requests: Vec<RequestFacts>,
}

/// One request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct RequestFacts {
    pub(super) id: u64,
    /// The tenant that sent it, where there are keys.
    #[serde(skip)]
    pub(super) tenant: Option<Tenant>,
    /// Time since it was accepted.
    pub(super) age_ms: u64,
    /// A lower value is served first.
    pub(super) priority: i32,
    pub(super) num_prompt_tokens: usize,
    pub(super) num_output_tokens: usize,
    pub(super) max_tokens: u32,
    /// Tokens whose keys and values are in the cache, or will be after the steps in flight.
    pub(super) num_computed_tokens: usize,
    pub(super) num_blocks: usize,
    /// Why it waits, for example `kv_cache` or `max_num_seqs`; `null` if it runs.
    #[schema(value_type = Option<String>)]
    pub(super) waits_for: Option<serde_json::Value>,
}

/// The KV cache as its manager last answered.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct KvCacheFacts {
    /// Time since that answer: more than zero while it is dead or hangs.
    pub(super) age_ms: u64,
    /// Blocks for tokens.
    pub(super) num_blocks: u32,
    /// Blocks that can be allocated, cached ones among them.
    pub(super) num_free: u32,
    /// Free blocks whose content can be hit. An estimate if cells have more than 16 blocks.
    pub(super) num_cached: u32,
    /// Blocks that more than one request holds. The same estimate.
    pub(super) num_shared: u32,
    /// Above 1, each cell of `runs` stands for this many blocks, and shows the state of most of
    /// them.
    pub(super) blocks_per_cell: u32,
    /// All blocks in order, equal neighbours in one run: `[blocks, state, request, holders]`.
    /// States: 0 free, 1 cached, 2 kept for a request by a new epoch, 3 held by requests. Of the
    /// holders, `request` was accepted first.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub(super) runs: Vec<[u64; 4]>,
}

/// The encoder cache of images and sounds as its manager last answered. Sizes are in embeddings.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct EncoderCacheFacts {
    /// Time since that answer: more than zero while it is dead or hangs.
    pub(super) age_ms: u64,
    /// Room for embeddings.
    pub(super) cache_size: usize,
    /// Room that is free.
    pub(super) num_free: usize,
    /// Room that is free or can be freed at once.
    pub(super) num_freeable: usize,
    /// Items whose embeddings are in memory.
    pub(super) num_ready: usize,
    /// Items that wait for the encoder, or are in it.
    pub(super) num_encoding: usize,
    /// Items encoded so far.
    pub(super) num_encoded: u64,
    /// Of these, the ones that were sent by a client or stored by another engine.
    pub(super) num_received: u64,
    /// Needs that found their item in memory or on its way.
    pub(super) num_hits: u64,
}

/// One request's last steps.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TimelineFacts {
    pub(super) id: u64,
    /// The tenant that sent it, where there are keys.
    #[serde(skip)]
    pub(super) tenant: Option<Tenant>,
    pub(super) has_ended: bool,
    /// Steps that follow each other and are alike: `[kind, first step, steps, tokens a step]`.
    /// Kinds: 0 a part of the prompt, 1 recomputed after a preemption or a new epoch, 2 decode, 3
    /// preempted.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub(super) segments: Vec<[u64; 4]>,
}
