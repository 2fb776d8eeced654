//! Turns the engine's reports about itself into the snapshot that clients read. If an actor is dead
//! or hangs, its part is shown as it last was.

use super::snapshot::{
    ActorFacts, EdgeFacts, EncoderCacheFacts, EngineFacts, EngineSnapshot, KvCacheFacts,
    LatencyFacts, ModelFacts, NO_REQUEST, RequestFacts, SchedulerFacts, TimelineFacts, TotalFacts,
};
use crate::{
    api::{
        ActorStats, BlockMap, BlockRun, BlockState, CoreView, EncoderCacheView, Health, Latencies,
        Micros, RequestId, RequestView, SchedulerView, Segment, StepKind, SystemView, Timeline,
        TotalsView,
    },
    engine::Engine,
    server::health::probes,
};

/// Makes snapshots, each compared with the one before.
pub(super) struct Shaper {
    model: ModelFacts,
    has_chaos: bool,
    seq: u64,
    totals: TotalsView,
    /// By the engine's index.
    answers: Vec<LastAnswers>,
}

/// The last answers of one engine's actors, with their times.
#[derive(Default)]
struct LastAnswers {
    scheduler: Option<(Micros, SchedulerView)>,
    blocks: Option<(Micros, BlockMap)>,
    encoder_cache: Option<(Micros, EncoderCacheView)>,
}

impl Shaper {
    pub(super) fn new(engine: &Engine) -> Self {
        let (info, config) = (engine.model_info(), engine.config());
        let model = ModelFacts {
            name: engine.served_model_names().first().cloned().unwrap_or_default(),
            max_model_len: info.max_model_len,
            block_size: info.kv_spec.block_size,
            max_num_seqs: config.max_num_seqs,
            max_num_batched_tokens: config.max_num_batched_tokens,
            generates: info.heads.generates,
            compares: engine.compares(),
        };
        Self { has_chaos: config.allow_chaos, ..Self::of(model) }
    }

    fn of(model: ModelFacts) -> Self {
        let (totals, answers) = (TotalsView::default(), Vec::new());
        Self { model, has_chaos: false, seq: 0, totals, answers }
    }

    /// Returns the next snapshot.
    pub(super) fn shape(
        &mut self,
        view: SystemView,
        health: Health,
        open_requests: usize,
    ) -> EngineSnapshot {
        self.seq += 1;
        let at = view.at;
        self.answers.resize_with(view.cores.len(), LastAnswers::default);
        let before = std::mem::replace(&mut self.totals, view.totals);
        let totals = &self.totals;
        let ttft = totals.time_to_first_token.since(&before.time_to_first_token);
        let itl = totals.inter_token_latency.since(&before.inter_token_latency);
        EngineSnapshot {
            seq: self.seq,
            at_ms: ms(at),
            health: probes::status(health),
            epoch: view.epoch.0,
            has_chaos: self.has_chaos,
            open_requests,
            model: self.model.clone(),
            actors: view.actors.iter().map(actor).collect(),
            edges: view
                .edges
                .iter()
                .map(|&(edge, messages)| EdgeFacts { edge: edge.as_str(), messages })
                .collect(),
            totals: total(totals),
            time_to_first_token: latency(&ttft),
            inter_token_latency: latency(&itl),
            engines: self
                .answers
                .iter_mut()
                .zip(view.cores)
                .map(|(answers, core)| answers.shape(core, at))
                .collect(),
        }
    }
}

impl LastAnswers {
    fn shape(&mut self, core: CoreView, at: Micros) -> EngineFacts {
        if let Ok(scheduler) = core.scheduler {
            self.scheduler = Some((at, scheduler));
        }
        if let Some(map) = core.kv_cache.ok().flatten() {
            self.blocks = Some((at, map));
        }
        if let Some(cache) = core.encoder_cache {
            self.encoder_cache = Some((at, cache));
        }
        EngineFacts {
            scheduler: self.scheduler.as_ref().map(|(of, view)| scheduler(view, *of, at)),
            kv_cache: self.blocks.as_ref().map(|(of, map)| kv_cache(map, *of, at)),
            encoder_cache: self.encoder_cache.map(|(of, view)| encoder_cache(&view, of, at)),
            timelines: core.timelines.requests().map(timeline).collect(),
            epochs: core.timelines.epochs().map(|(step, epoch)| [step.0, epoch.0]).collect(),
        }
    }
}

fn actor(stats: &ActorStats) -> ActorFacts {
    ActorFacts {
        role: stats.role.as_str(),
        index: stats.index,
        parent: stats.role.supervisor().map(|role| role.as_str()),
        state: if stats.is_alive { "alive" } else { "dead" },
        restarts: stats.restarts,
        mailbox_depth: stats.mailbox_depth,
        heartbeat_age_ms: ms(stats.heartbeat_age),
        busy_ms: stats.busy_for.map(ms),
    }
}

fn total(totals: &TotalsView) -> TotalFacts {
    TotalFacts {
        steps: totals.steps,
        scheduled_tokens: totals.scheduled_tokens,
        prompt_tokens: totals.prompt_tokens,
        recomputed_tokens: totals.recomputed_tokens,
        output_tokens: totals.output_tokens,
        prefix_cache_queries: totals.prefix_cache_queries,
        prefix_cache_hits: totals.prefix_cache_hits,
        preemptions: totals.preemptions,
        finished_requests: totals.finished_requests,
    }
}

fn latency(latencies: &Latencies) -> LatencyFacts {
    let quantile = |q| latencies.quantile(q).map(|micros| micros as f64 / 1e3);
    LatencyFacts {
        count: latencies.count(),
        mean_ms: latencies.mean().map(|micros| micros.round() / 1e3),
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
    }
}

fn scheduler(view: &SchedulerView, of: Micros, now: Micros) -> SchedulerFacts {
    let requests = view.running.iter().chain(&view.waiting);
    SchedulerFacts {
        age_ms: ms(now.saturating_sub(of)),
        epoch: view.epoch.0,
        step: view.stats.step.0,
        num_running: view.stats.num_running,
        num_waiting: view.stats.num_waiting + view.stats.num_skipped_waiting,
        pause: word(&view.pause),
        requests: requests.map(|view| request(view, of)).collect(),
    }
}

fn request(view: &RequestView, of: Micros) -> RequestFacts {
    RequestFacts {
        id: view.id.0,
        tenant: view.tenant,
        age_ms: ms(of.saturating_sub(view.arrival)),
        priority: view.priority,
        num_prompt_tokens: view.num_prompt_tokens,
        num_output_tokens: view.num_output_tokens,
        max_tokens: view.max_tokens,
        num_computed_tokens: view.num_computed_tokens,
        num_blocks: view.num_blocks,
        waits_for: view.waits_for.as_ref().map(word),
    }
}

fn kv_cache(map: &BlockMap, of: Micros, now: Micros) -> KvCacheFacts {
    KvCacheFacts {
        age_ms: ms(now.saturating_sub(of)),
        num_blocks: map.num_blocks,
        num_free: map.num_free,
        num_cached: map.num_cached,
        num_shared: map.num_shared,
        blocks_per_cell: map.blocks_per_cell,
        runs: map.runs.iter().map(run).collect(),
    }
}

fn encoder_cache(view: &EncoderCacheView, of: Micros, now: Micros) -> EncoderCacheFacts {
    EncoderCacheFacts {
        age_ms: ms(now.saturating_sub(of)),
        cache_size: view.cache_size,
        num_free: view.num_free,
        num_freeable: view.num_freeable,
        num_ready: view.num_ready,
        num_encoding: view.num_encoding,
        num_encoded: view.num_encoded,
        num_received: view.num_received,
        num_hits: view.num_hits,
    }
}

fn run(run: &BlockRun) -> [u64; 4] {
    let state = match run.state {
        BlockState::Free => 0,
        BlockState::Cached => 1,
        BlockState::Tail => 2,
        BlockState::Used => 3,
    };
    let owner = run.owner.map_or(NO_REQUEST, |request| request.0);
    [run.num_blocks.into(), state, owner, run.ref_cnt.into()]
}

fn timeline((id, timeline): (RequestId, &Timeline)) -> TimelineFacts {
    let segments = timeline.segments.iter().map(segment).collect();
    TimelineFacts { id: id.0, tenant: timeline.tenant, has_ended: timeline.has_ended, segments }
}

fn segment(segment: &Segment) -> [u64; 4] {
    let kind = match segment.kind {
        StepKind::Prefill => 0,
        StepKind::Recompute => 1,
        StepKind::Decode => 2,
        StepKind::Preempted => 3,
    };
    [kind, segment.first_step.0, segment.num_steps, segment.num_tokens as u64]
}

/// Returns a value that serde writes as one word.
fn word(value: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn ms(micros: Micros) -> u64 {
    micros / 1_000
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::{
        ActorError, Epoch, SchedulerOutput, Step, Tenant, Timelines, WaitingReason, latencies,
    };

    fn shaper() -> Shaper {
        Shaper::of(ModelFacts {
            name: "demo".to_owned(),
            max_model_len: 64,
            block_size: 16,
            max_num_seqs: 4,
            max_num_batched_tokens: 32,
            generates: true,
            compares: false,
        })
    }

    fn gone() -> ActorError {
        ActorError::Gone { callee: "scheduler" }
    }

    fn view(at_ms: u64) -> SystemView {
        let mut timelines = Timelines::default();
        let (step, epoch) = (Step(4), Epoch(3));
        timelines.record(&SchedulerOutput { step, epoch, ..SchedulerOutput::default() });
        SystemView {
            at: at_ms * 1_000,
            epoch: Epoch(3),
            actors: Vec::new(),
            edges: vec![("scheduler->worker".parse().unwrap(), 12)],
            totals: TotalsView::default(),
            cores: vec![CoreView {
                scheduler: Err(gone()),
                kv_cache: Err(gone()),
                encoder_cache: None,
                timelines,
            }],
        }
    }

    fn view_of(at_ms: u64, cores: Vec<CoreView>) -> SystemView {
        SystemView { cores, ..view(at_ms) }
    }

    fn core() -> CoreView {
        view(0).cores.remove(0)
    }

    fn shaped(shaper: &mut Shaper, view: SystemView) -> Value {
        serde_json::to_value(shaper.shape(view, Health::Recovering, 2)).unwrap()
    }

    #[test]
    fn a_silent_actor_is_null_and_others_are_shown_as_they_were() {
        let mut shaper = shaper();
        let first = shaped(&mut shaper, view(100));
        assert_eq!((&first["seq"], &first["at_ms"]), (&json!(1), &json!(100)));
        assert_eq!(first["health"], "recovering");
        let engine = &first["engines"][0];
        assert_eq!((&engine["scheduler"], &engine["kv_cache"]), (&Value::Null, &Value::Null));
        assert_eq!(engine["encoder_cache"], Value::Null);
        assert_eq!(first["edges"][0], json!({"edge": "scheduler->worker", "messages": 12}));
        assert_eq!(engine["epochs"], json!([[4, 3]]));

        let waiting = RequestView {
            id: RequestId(9),
            tenant: Some(Tenant(1)),
            arrival: 50_000,
            priority: 0,
            num_prompt_tokens: 20,
            num_output_tokens: 0,
            max_tokens: 7,
            num_computed_tokens: 0,
            num_blocks: 0,
            waits_for: Some(WaitingReason::KvCache),
        };
        let run = BlockRun {
            num_blocks: 5,
            state: BlockState::Used,
            owner: Some(RequestId(8)),
            ref_cnt: 2,
        };
        let map = BlockMap { num_blocks: 5, runs: vec![run], ..BlockMap::default() };
        let answered = CoreView {
            scheduler: Ok(SchedulerView { waiting: vec![waiting], ..SchedulerView::default() }),
            kv_cache: Ok(Some(map)),
            encoder_cache: Some(EncoderCacheView { num_ready: 3, ..EncoderCacheView::default() }),
            ..core()
        };
        let second = shaped(&mut shaper, view_of(200, vec![answered, core()]));
        assert_eq!(second["engines"][1]["scheduler"], Value::Null, "the other engine is silent");
        let second = &second["engines"][0];
        let request = &second["scheduler"]["requests"][0];
        assert_eq!((&request["id"], &request["age_ms"]), (&json!(9), &json!(150)));
        assert_eq!(
            (&request["waits_for"], &second["scheduler"]["pause"]),
            (&json!("kv_cache"), &json!("unpaused"))
        );
        assert_eq!(second["kv_cache"]["runs"], json!([[5, 3, 8, 2]]));
        assert_eq!(second["kv_cache"]["age_ms"], 0);
        assert_eq!(second["encoder_cache"]["num_ready"], 3);

        let snapshot = shaper.shape(view(300), Health::Ready, 2);
        let seen = |tenant| {
            serde_json::to_value(snapshot.seen_by(Tenant(tenant))).unwrap()["engines"][0].take()
        };
        assert_eq!(seen(1)["scheduler"]["requests"][0]["id"], 9);
        assert_eq!(seen(2)["scheduler"]["requests"], json!([]));
        assert_eq!(seen(2)["kv_cache"]["runs"], json!([[5, 3, 0, 2]]), "a block of another tenant");

        let third = view_of(700, vec![CoreView { kv_cache: Ok(None), ..core() }]);
        let third = &shaped(&mut shaper, third)["engines"][0];
        assert_eq!(third["scheduler"]["age_ms"], 500);
        assert_eq!(third["encoder_cache"]["age_ms"], 500, "as it last was");
        assert_eq!(third["scheduler"]["requests"][0]["age_ms"], 150, "as it was then");
        assert_eq!(
            (&third["kv_cache"]["age_ms"], &third["kv_cache"]["num_blocks"]),
            (&json!(500), &json!(5))
        );
    }

    #[test]
    fn latencies_are_those_since_the_snapshot_before() {
        let counted = |micros: &[Micros]| {
            let mut counted = Latencies { counts: vec![0; latencies::NUM_BUCKETS], sum: 0 };
            for &one in micros {
                counted.counts[latencies::bucket_of(one)] += 1;
                counted.sum += one;
            }
            counted
        };
        let with = |inter_token_latency: Latencies| SystemView {
            totals: TotalsView { inter_token_latency, ..TotalsView::default() },
            ..view(0)
        };
        let mut shaper = shaper();
        shaped(&mut shaper, with(counted(&[9_000_000])));
        let next = shaped(&mut shaper, with(counted(&[9_000_000, 2_000, 4_000])));
        let itl = &next["inter_token_latency"];
        assert_eq!((&itl["count"], &itl["mean_ms"]), (&json!(2), &json!(3.0)));
        assert!((1.8..2.2).contains(&itl["p50_ms"].as_f64().unwrap()), "{itl}");
        let quiet = shaped(&mut shaper, with(counted(&[9_000_000, 2_000, 4_000])));
        assert_eq!(quiet["inter_token_latency"]["p50_ms"], Value::Null);
        assert_eq!(quiet["time_to_first_token"]["count"], 0);
    }
}
