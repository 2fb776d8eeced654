//! A snapshot as clients read it. Times are milliseconds, counts since the start of the engine.

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Tenant;

/// As a holder of blocks: none, or one that the reader must not know. Request 0 is one, too.
pub(super) const NO_REQUEST: u64 = 0;

/// The engine at one time.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = HouseSnapshot)]
pub(in crate::server) struct EngineSnapshot {
    /// Counts the snapshots: all who watch get the same ones.
    pub(super) seq: u64,
    /// Since the start of the engine.
    pub(super) at_ms: u64,
    /// `starting`, `ready`, `recovering`, `draining` or `dead`.
    pub(super) health: &'static str,
    /// How often the core began anew.
    pub(super) epoch: u64,
    /// Whether this build has `/chaos/*`.
    pub(super) has_chaos: bool,
    /// Requests accepted whose end was not delivered.
    pub(super) open_requests: usize,
    pub(super) model: ModelFacts,
    /// Supervisors first.
    pub(super) actors: Vec<ActorFacts>,
    pub(super) edges: Vec<EdgeFacts>,
    pub(super) totals: TotalFacts,
    /// From acceptance to the first token, of the requests that got it since the last snapshot.
    pub(super) time_to_first_token: LatencyFacts,
    /// From one token to the next, of the tokens since the last snapshot.
    pub(super) inter_token_latency: LatencyFacts,
    /// `null` before the scheduler has answered for the first time.
    pub(super) scheduler: Option<SchedulerFacts>,
    /// `null` before the first step.
    pub(super) kv_cache: Option<KvCacheFacts>,
    /// What requests did in which step, while somebody watches `/house/events`.
    pub(super) timelines: Vec<TimelineFacts>,
    /// The epochs of these steps: `[first step, epoch]`.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub(super) epochs: Vec<[u64; 2]>,
}

impl EngineSnapshot {
    /// What a client may see: of other tenants' requests nothing but what they add to counts, and
    /// that somebody's blocks are in use.
    pub(super) fn seen_by(&self, tenant: Tenant) -> Self {
        let mut seen = self.clone();
        let is_own = |owner: Option<Tenant>| owner == Some(tenant);
        let mut own = BTreeSet::new();
        seen.timelines.retain(|timeline| is_own(timeline.tenant));
        own.extend(seen.timelines.iter().map(|timeline| timeline.id));
        if let Some(scheduler) = &mut seen.scheduler {
            scheduler.requests.retain(|request| is_own(request.tenant));
            own.extend(scheduler.requests.iter().map(|request| request.id));
        }
        for [_, _, owner, _] in seen.kv_cache.iter_mut().flat_map(|cache| &mut cache.runs) {
            if !own.contains(owner) {
                *owner = NO_REQUEST;
            }
        }
        seen
    }
}

/// What does not change.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ModelFacts {
    pub(super) name: String,
    pub(super) max_model_len: usize,
    /// Tokens that a block of the KV cache holds.
    pub(super) block_size: usize,
    /// Requests that may run at the same time.
    pub(super) max_num_seqs: usize,
    /// Tokens that a step may have.
    pub(super) max_num_batched_tokens: usize,
}

/// One actor.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ActorFacts {
    pub(super) role: &'static str,
    /// Which of those with the same role.
    pub(super) index: usize,
    /// The role of its supervisor; `null` for the root.
    pub(super) parent: Option<&'static str>,
    /// `alive` or `dead`.
    pub(super) state: &'static str,
    /// How often it was replaced.
    pub(super) restarts: u64,
    /// Messages sent to it and not begun with.
    pub(super) mailbox_depth: u64,
    /// Since it last began with a message, the watchdog's pings among them.
    pub(super) heartbeat_age_ms: u64,
    /// How long it has been at the message that it is at, if it is at one.
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

/// Counts since the start.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TotalFacts {
    /// Steps with something to compute.
    pub(super) steps: u64,
    /// Tokens computed in them.
    pub(super) scheduled_tokens: u64,
    /// Of these, tokens of prompts for the first time.
    pub(super) prompt_tokens: u64,
    /// Of these, tokens computed again, after a preemption or a new epoch.
    pub(super) recomputed_tokens: u64,
    /// Tokens that became permanent.
    pub(super) output_tokens: u64,
    /// Tokens looked up in the prefix cache.
    pub(super) prefix_cache_queries: u64,
    /// Those of them that were there.
    pub(super) prefix_cache_hits: u64,
    pub(super) preemptions: u64,
    pub(super) finished_requests: u64,
}

/// How long something took; quantiles are `null` when nothing was counted.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct LatencyFacts {
    pub(super) count: u64,
    pub(super) mean_ms: Option<f64>,
    /// Within a sixteenth.
    pub(super) p50_ms: Option<f64>,
    /// Within a sixteenth.
    pub(super) p99_ms: Option<f64>,
}

/// The scheduler, when it last answered.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct SchedulerFacts {
    /// How long ago that was: more than nothing while it is dead or hangs.
    pub(super) age_ms: u64,
    pub(super) epoch: u64,
    /// Steps planned.
    pub(super) step: u64,
    pub(super) num_running: usize,
    /// Those that wait aside for a grammar among them.
    pub(super) num_waiting: usize,
    /// `unpaused`, `paused_new` or `paused_all`.
    #[schema(value_type = String)]
    pub(super) pause: serde_json::Value,
    /// Running ones first, then waiting ones in the order of service; of each at most 128. A client
    /// with a key sees its own ones among them.
    pub(super) requests: Vec<RequestFacts>,
}

/// One request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct RequestFacts {
    pub(super) id: u64,
    /// Whose it is, where there are keys.
    #[serde(skip)]
    pub(super) tenant: Option<Tenant>,
    /// Since it was accepted.
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

/// The KV cache, when its manager last answered.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct KvCacheFacts {
    /// How long ago that was: more than nothing while it is dead or hangs.
    pub(super) age_ms: u64,
    /// Blocks for tokens.
    pub(super) num_blocks: u32,
    /// Blocks that can be handed out, cached ones among them.
    pub(super) num_free: u32,
    /// Free blocks whose content can be hit; with cells of more than 16 blocks, an estimate.
    pub(super) num_cached: u32,
    /// Blocks that more than one request holds; likewise.
    pub(super) num_shared: u32,
    /// Above 1, each cell of `runs` stands for so many blocks, and shows what most of them are.
    pub(super) blocks_per_cell: u32,
    /// All blocks in order, neighbours that are alike in one run: `[blocks, state, request,
    /// holders]`. States: 0 free, 1 cached, 2 kept for a request by a new epoch, 3 held by requests,
    /// of which `request` was accepted first.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub(super) runs: Vec<[u64; 4]>,
}

/// One request's last steps.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TimelineFacts {
    pub(super) id: u64,
    /// Whose it is, where there are keys.
    #[serde(skip)]
    pub(super) tenant: Option<Tenant>,
    pub(super) has_ended: bool,
    /// Steps that follow each other and are alike: `[kind, first step, steps, tokens a step]`.
    /// Kinds: 0 a part of the prompt, 1 computed again after a preemption or a new epoch, 2 decode,
    /// 3 preempted.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub(super) segments: Vec<[u64; 4]>,
}
