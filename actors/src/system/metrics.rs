//! The metrics of one engine of an actor system: vLLM's names and labels under `playhouse:`, and
//! metrics that only this program has. Handles are made once. Without a recorder they do nothing.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};

use super::{draft_metrics::DraftMetrics, preemption_counts::PreemptionCounts, totals::Totals};
use crate::{
    error::RequestError,
    logic::{
        ledger::{Entry, GroundState, LedgerEvent},
        recovery::sanity::ModelState,
        request::{FinishReason, failure::Failure, ids::Micros},
        scheduler::{SchedulerStats, StepStats, WaitingReason},
    },
    message::Role,
};

const RESTARTS: &str = "playhouse:actor_restarts_total";
const HANGS: &str = "playhouse:hangs_total";
const FINISHED: &str = "playhouse:request_success_total";
const REJECTED: &str = "playhouse:admission_rejections_total";
/// The limits of the queue and of a tenant, at which requests are rejected.
const LIMITS: [&str; 5] = [
    "max_num_requests",
    "max_num_queued_reqs",
    "max_num_queued_tokens",
    "max_open_requests",
    "tokens_per_minute",
];

/// The metrics of one engine.
#[derive(Debug)]
pub struct SystemMetrics {
    labels: Vec<Label>,
    running: Gauge,
    waiting: Gauge,
    waiting_by_reason: [(&'static str, Gauge); 2],
    kv_cache_usage: Gauge,
    prefix_queries: Counter,
    prefix_hits: Counter,
    preemptions: Counter,
    prompt_tokens: Counter,
    cached_prompt_tokens: Counter,
    cached_on_device: Counter,
    corrupted_requests: Counter,
    num_preemptions: PreemptionCounts,
    request_preemptions: Histogram,
    computed_by_source: [Counter; 2],
    generation_tokens: Counter,
    iteration_tokens: Histogram,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    time_per_output_token: Histogram,
    e2e_latency: Histogram,
    queue_time: Histogram,
    inference_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    request_prompt_tokens: Histogram,
    request_computed_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    request_longest_output: Histogram,
    request_max_tokens: Histogram,
    request_n: Histogram,
    /// Messages of a past epoch or generation, and repeated messages.
    pub stale_messages: Counter,
    /// Recordings that ended before their engine.
    pub(crate) truncated_recordings: Counter,
    /// Committed tokens of the requests that a new core continued.
    replayed_tokens: Counter,
    recomputed_tokens: Counter,
    adopted_tail_tokens: Counter,
    /// 1 while the model's logits are not finite.
    non_finite_logits: Gauge,
    /// Guesses.
    pub(crate) drafts: DraftMetrics,
    /// The same numbers, for readers within the process.
    pub totals: Arc<Totals>,
}

impl SystemMetrics {
    /// Returns handles with the labels `model_name` and `engine`. A step has at most
    /// `num_lookahead_tokens` guesses for a request.
    #[must_use]
    pub fn new(model_name: &str, engine: &str, num_lookahead_tokens: usize) -> Self {
        Self::with_totals(model_name, engine, num_lookahead_tokens, Arc::default())
    }

    /// Returns the same with totals that other engines count in, too.
    #[must_use]
    pub fn with_totals(
        model_name: &str,
        engine: &str,
        num_lookahead_tokens: usize,
        totals: Arc<Totals>,
    ) -> Self {
        let labels = vec![
            Label::new("model_name", model_name.to_owned()),
            Label::new("engine", engine.to_owned()),
        ];
        let l = &labels;
        let by_reason = |reason: &'static str| {
            let labels = with(l, "reason", reason);
            (reason, gauge!("playhouse:num_requests_waiting_by_reason", labels))
        };
        // Prometheus' `increase` does not see the first count of a series that begins with it.
        for role in Role::ACTORS {
            counter!(RESTARTS, with(l, "role", role.as_str())).increment(0);
            counter!(HANGS, with(l, "role", role.as_str())).increment(0);
        }
        counter!(HANGS, with(l, "role", "step")).increment(0);
        for limit in LIMITS {
            counter!(REJECTED, with(&l[..1], "reason", limit)).increment(0);
        }
        for reason in finish_reasons() {
            counter!(FINISHED, with(l, "finished_reason", reason.as_str())).increment(0);
        }
        Self {
            running: gauge!("playhouse:num_requests_running", l.iter()),
            waiting: gauge!("playhouse:num_requests_waiting", l.iter()),
            waiting_by_reason: [by_reason("capacity"), by_reason("deferred")],
            kv_cache_usage: gauge!("playhouse:kv_cache_usage_perc", l.iter()),
            prefix_queries: counter!("playhouse:prefix_cache_queries_total", l.iter()),
            prefix_hits: counter!("playhouse:prefix_cache_hits_total", l.iter()),
            preemptions: counter!("playhouse:num_preemptions_total", l.iter()),
            prompt_tokens: counter!("playhouse:prompt_tokens_total", l.iter()),
            cached_prompt_tokens: counter!("playhouse:prompt_tokens_cached_total", l.iter()),
            cached_on_device: counter!(
                "playhouse:prompt_tokens_cached_by_source_total",
                with(l, "source", "device")
            ),
            corrupted_requests: counter!("playhouse:corrupted_requests_total", l.iter()),
            num_preemptions: PreemptionCounts::default(),
            request_preemptions: histogram!("playhouse:request_num_preemptions", l.iter()),
            computed_by_source: ["local_compute", "local_cache_hit"].map(|source| {
                counter!("playhouse:prompt_tokens_by_source_total", with(l, "source", source))
            }),
            generation_tokens: counter!("playhouse:generation_tokens_total", l.iter()),
            iteration_tokens: histogram!("playhouse:iteration_tokens_total", l.iter()),
            time_to_first_token: histogram!("playhouse:time_to_first_token_seconds", l.iter()),
            inter_token_latency: histogram!("playhouse:inter_token_latency_seconds", l.iter()),
            time_per_output_token: histogram!(
                "playhouse:request_time_per_output_token_seconds",
                l.iter()
            ),
            e2e_latency: histogram!("playhouse:e2e_request_latency_seconds", l.iter()),
            queue_time: histogram!("playhouse:request_queue_time_seconds", l.iter()),
            inference_time: histogram!("playhouse:request_inference_time_seconds", l.iter()),
            prefill_time: histogram!("playhouse:request_prefill_time_seconds", l.iter()),
            decode_time: histogram!("playhouse:request_decode_time_seconds", l.iter()),
            request_prompt_tokens: histogram!("playhouse:request_prompt_tokens", l.iter()),
            request_computed_prompt_tokens: histogram!(
                "playhouse:request_prefill_kv_computed_tokens",
                l.iter()
            ),
            request_generation_tokens: histogram!("playhouse:request_generation_tokens", l.iter()),
            request_longest_output: histogram!(
                "playhouse:request_max_num_generation_tokens",
                l.iter()
            ),
            request_max_tokens: histogram!("playhouse:request_params_max_tokens", l.iter()),
            request_n: histogram!("playhouse:request_params_n", l.iter()),
            stale_messages: counter!("playhouse:stale_messages_total", l.iter()),
            truncated_recordings: counter!("playhouse:truncated_recordings_total", l.iter()),
            replayed_tokens: counter!("playhouse:replayed_tokens_total", l.iter()),
            recomputed_tokens: counter!("playhouse:recomputed_tokens_total", l.iter()),
            adopted_tail_tokens: counter!("playhouse:adopted_tail_tokens_total", l.iter()),
            non_finite_logits: gauge!("playhouse:model_non_finite_logits", l.iter()),
            drafts: DraftMetrics::new(l, num_lookahead_tokens),
            totals,
            labels,
        }
    }

    /// Counts a planned step.
    pub fn scheduled(&self, step: &StepStats, now: &SchedulerStats) {
        self.totals.scheduled(step);
        self.running.set(now.num_running as f64);
        self.waiting.set((now.num_waiting + now.num_skipped_waiting) as f64);
        for (class, gauge) in &self.waiting_by_reason {
            let mut waiting = 0;
            if *class == now.waiting_reason.class() {
                waiting += now.num_waiting;
            }
            if *class == WaitingReason::StructuredOutputGrammar.class() {
                waiting += now.num_skipped_waiting;
            }
            gauge.set(waiting as f64);
        }
        self.kv_cache_usage.set(now.kv_cache_usage);
        self.prefix_queries.increment(step.prefix_cache_queries as u64);
        self.prefix_hits.increment(step.prefix_cache_hits as u64);
        self.preemptions.increment(step.preempted.len() as u64);
        self.num_preemptions.count(&step.preempted);
        self.recomputed_tokens.increment(step.recomputed_tokens as u64);
        self.adopted_tail_tokens.increment(step.adopted_tail_tokens as u64);
        if step.num_scheduled_tokens > 0 {
            self.iteration_tokens.record(step.num_scheduled_tokens as f64);
        }
        for first in &step.first_scheduled {
            self.queue_time.record(seconds(first.queue_time));
        }
    }

    /// Counts an event of the ledger.
    pub fn on_ledger_event(&self, event: &LedgerEvent, state: &GroundState) {
        match event {
            LedgerEvent::EpochBegan { engine, .. } => {
                let replayed: usize =
                    state.live_of(*engine).map(|entry| entry.output().len()).sum();
                self.replayed_tokens.increment(replayed as u64);
            }
            LedgerEvent::Committed { commit, .. } => {
                if let Some(entry) = state.get(commit.request) {
                    self.committed(entry, commit.produced.tokens().len());
                }
            }
            _ => {}
        }
        if let Some(end) = event.end()
            && let Some(entry) = state.get(end.request)
        {
            let is_live = |request| state.get_live(request).is_some();
            let preempted = self.num_preemptions.take(end.request, state.len(), is_live);
            self.request_preemptions.record(f64::from(preempted));
            self.finished(entry, end.reason, end.at);
        }
    }

    /// Shows an engine without requests. After its end nothing else would update the gauges.
    pub(crate) fn ended(&self) {
        let by_reason = self.waiting_by_reason.iter().map(|(_, gauge)| gauge);
        let gauges = [&self.running, &self.waiting, &self.kv_cache_usage, &self.non_finite_logits];
        by_reason.chain(gauges).for_each(|gauge| gauge.set(0.0));
    }

    fn committed(&self, entry: &Entry, num_tokens: usize) {
        let timing = entry.timing();
        self.totals.committed(num_tokens, &timing);
        self.generation_tokens.increment(num_tokens as u64);
        if let Some(waited) = timing.time_to_first_token {
            self.time_to_first_token.record(seconds(waited));
        }
        if let Some(waited) = timing.inter_token_latency {
            self.inter_token_latency.record(seconds(waited));
        }
    }

    fn finished(&self, entry: &Entry, reason: &FinishReason, now: Micros) {
        self.totals.finished();
        let request = entry.request();
        let labels = with(&self.labels, "finished_reason", reason.as_str());
        counter!(FINISHED, labels).increment(1);
        let (prompt, output) = (request.num_input_tokens(), entry.output().len());
        let cached = entry.num_cached_tokens().unwrap_or(0).min(prompt);
        self.prompt_tokens.increment(prompt as u64);
        self.cached_prompt_tokens.increment(cached as u64);
        self.cached_on_device.increment(cached as u64);
        if *reason == FinishReason::Error(Failure::NumericalGarbage) {
            self.corrupted_requests.increment(1);
        }
        let [computed, found] = &self.computed_by_source;
        computed.increment((prompt - cached) as u64);
        found.increment(cached as u64);
        self.request_computed_prompt_tokens.record((prompt - cached) as f64);
        self.request_longest_output.record(output as f64);
        self.request_prompt_tokens.record(prompt as f64);
        self.request_generation_tokens.record(output as f64);
        if let Some(params) = request.sampling() {
            self.request_max_tokens.record(f64::from(params.max_tokens));
            self.request_n.record(f64::from(params.n));
        }
        self.e2e_latency.record(seconds(now.saturating_sub(request.arrival)));
        self.phases(entry);
        if let Some(first) = entry.first_token().filter(|_| output > 1) {
            let decode = seconds(now.saturating_sub(first));
            self.time_per_output_token.record(decode / (output - 1) as f64);
        }
    }

    /// Records how long a request that has ended was computed. Its first token separates prefill
    /// from decode.
    fn phases(&self, entry: &Entry) {
        let scheduled = entry.queue_time().map(|waited| entry.request().arrival + waited);
        let (Some(first), Some(last)) = (entry.first_token(), entry.last_token()) else { return };
        self.decode_time.record(seconds(last.saturating_sub(first)));
        if let Some(scheduled) = scheduled {
            self.prefill_time.record(seconds(first.saturating_sub(scheduled)));
            self.inference_time.record(seconds(last.saturating_sub(scheduled)));
        }
    }

    /// Counts a request that was rejected because a limit was reached.
    pub fn rejected(&self, error: &RequestError) {
        if let RequestError::QueueFull { what, .. } | RequestError::QuotaExceeded { what, .. } =
            error
            && let Some(limit) = LIMITS.into_iter().find(|limit| what.ends_with(limit))
        {
            counter!(REJECTED, with(&self.labels[..1], "reason", limit)).increment(1);
        }
    }

    /// Counts an actor of this role, or a `step`, that was found to hang.
    pub fn hung(&self, role: &'static str) {
        counter!(HANGS, with(&self.labels, "role", role)).increment(1);
    }

    /// Shows a changed state of the model.
    pub fn judged_model(&self, model: ModelState) {
        let is_broken = model == ModelState::NonFiniteLogits;
        self.non_finite_logits.set(f64::from(u8::from(is_broken)));
    }

    /// Counts an actor that was replaced.
    pub fn restarted(&self, role: Role) {
        counter!(RESTARTS, with(&self.labels, "role", role.as_str())).increment(1);
    }
}

/// Returns `labels` and one more.
fn with(labels: &[Label], name: &'static str, value: &'static str) -> Vec<Label> {
    let more = Label::from_static_parts(name, value);
    labels.iter().cloned().chain([more]).collect()
}

/// Returns one reason of each kind.
fn finish_reasons() -> [FinishReason; 5] {
    use FinishReason::{Abort, Error, Length, Repetition, Stop};
    [Stop(None), Length, Abort, Repetition, Error(Failure::Quarantined)]
}

fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}
