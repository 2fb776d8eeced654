//! The texts of all metrics, for Prometheus and its readers.

use metrics::{describe_counter, describe_gauge, describe_histogram};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

/// Each metric's name after `playhouse:`, its kind, and its meaning.
const METRICS: &[(&str, Kind, &str)] = &[
    // vLLM's.
    ("num_requests_running", Gauge, "Requests in execution."),
    ("num_requests_waiting", Gauge, "Requests that wait to be scheduled."),
    ("num_requests_waiting_by_reason", Gauge, "Requests that wait, by the reason."),
    ("kv_cache_usage_perc", Gauge, "Share of the KV cache in use, 1 for all of it."),
    ("prefix_cache_queries_total", Counter, "Prompt tokens looked up in the prefix cache."),
    ("prefix_cache_hits_total", Counter, "Prompt tokens found in the prefix cache."),
    ("mm_cache_queries_total", Counter, "Images and sounds looked up in their cache."),
    ("mm_cache_hits_total", Counter, "Images and sounds found in their cache."),
    ("num_preemptions_total", Counter, "Requests whose blocks were taken for others."),
    ("prompt_tokens_total", Counter, "Tokens of the prompts of ended requests."),
    ("prompt_tokens_cached_total", Counter, "Those of them that the prefix cache had."),
    (
        "prompt_tokens_cached_by_source_total",
        Counter,
        "Those of them that the prefix cache had, by where it is.",
    ),
    ("prompt_tokens_by_source_total", Counter, "Tokens of prompts by their source."),
    ("generation_tokens_total", Counter, "Tokens of outputs."),
    ("request_success_total", Counter, "Ended requests by the reason of their end."),
    ("corrupted_requests_total", Counter, "Requests that ended because logits were not finite."),
    ("admission_rejections_total", Counter, "Requests rejected at a limit, by the limit."),
    ("iteration_tokens_total", Histogram, "Tokens that a step computes."),
    ("time_to_first_token_seconds", Histogram, "Time from arrival to the first token."),
    ("inter_token_latency_seconds", Histogram, "Time between two tokens of a request."),
    (
        "request_time_per_output_token_seconds",
        Histogram,
        "Mean time of a request's tokens after its first.",
    ),
    ("e2e_request_latency_seconds", Histogram, "Time from arrival to the end of a request."),
    ("request_queue_time_seconds", Histogram, "Time from arrival until a request is scheduled."),
    ("request_inference_time_seconds", Histogram, "Time from being scheduled to the last token."),
    ("request_prefill_time_seconds", Histogram, "Time from being scheduled to the first token."),
    ("request_decode_time_seconds", Histogram, "Time from the first token to the last."),
    ("request_prompt_tokens", Histogram, "Tokens of a request's prompt."),
    (
        "request_prefill_kv_computed_tokens",
        Histogram,
        "Tokens of a request's prompt that the prefix cache did not have.",
    ),
    ("request_generation_tokens", Histogram, "Tokens of a request's output."),
    ("request_max_num_generation_tokens", Histogram, "Tokens of a request's longest output."),
    ("request_params_max_tokens", Histogram, "Most tokens of output that a request asks for."),
    ("request_num_preemptions", Histogram, "Times that a request was preempted."),
    ("request_params_n", Histogram, "Choices that a request asks for."),
    ("spec_decode_num_drafts_total", Counter, "Times that tokens of a request were guessed."),
    ("spec_decode_num_draft_tokens_total", Counter, "Guessed tokens."),
    ("spec_decode_num_accepted_tokens_total", Counter, "Guessed tokens that were right."),
    (
        "spec_decode_num_accepted_tokens_per_pos_total",
        Counter,
        "Guessed tokens that were right, by their place among the guesses.",
    ),
    (
        "tool_call_parser_invocations_total",
        Counter,
        "Readings of texts by a parser of calls, by their outcome.",
    ),
    ("sleep_mode_operations_in_flight", Gauge, "Operations of the sleep mode in flight."),
    ("sleep_mode_operation_duration_seconds", Histogram, "Time of an operation of the sleep mode."),
    ("websocket_connections_active", Gauge, "Open WebSockets."),
    ("websocket_connections_total", Counter, "WebSockets that were opened."),
    ("websocket_connection_duration_seconds", Histogram, "Time for which a WebSocket is open."),
    // Of this engine.
    ("actor_restarts_total", Counter, "Actors that were replaced, by role."),
    ("hangs_total", Counter, "Actors and steps that were found to hang, by role."),
    ("model_non_finite_logits", Gauge, "1 while the model's logits are not finite."),
    ("stale_messages_total", Counter, "Messages of a past epoch, and repeated messages."),
    (
        "truncated_recordings_total",
        Counter,
        "Recordings that ended before their engine, because of their size or the disk.",
    ),
    ("replayed_tokens_total", Counter, "Committed tokens of requests that a new core continued."),
    ("recomputed_tokens_total", Counter, "Tokens that were computed again."),
    ("adopted_tail_tokens_total", Counter, "Tokens of partial blocks that a new core found."),
    ("runtime_frozen", Gauge, "1 while all threads of the runtime are stuck."),
    ("runtime_stuck_threads", Gauge, "Threads of the runtime that are stuck."),
    ("runtime_freezes_total", Counter, "Times that the whole runtime froze."),
    ("accept_loop_restarts_total", Counter, "Accept loops that were replaced."),
    ("unknown_request_fields_total", Counter, "Fields of requests that were ignored, by route."),
    ("log_lines_dropped_total", Counter, "Log lines that standard error did not take."),
    ("request_memory_bytes", Gauge, "Memory that requests hold."),
    ("request_memory_limit_bytes", Gauge, "Most memory that requests may hold."),
    (
        "request_memory_refused_total",
        Counter,
        "Requests and outputs that were refused because this memory was full.",
    ),
    ("engine_process_resident_memory_bytes", Gauge, "Memory of an engine process."),
    ("engine_process_cpu_seconds", Gauge, "Processor time of the running engine process."),
    ("journal_degraded", Gauge, "1 while the journal cannot be written."),
    ("journal_answers", Gauge, "Answers in the journal."),
    ("journal_segment_bytes", Gauge, "Size of the journal's segment."),
    ("journal_other_model_answers", Gauge, "Answers of other models that stay in the journal."),
    ("journal_records_total", Counter, "Records written to the journal."),
    ("journal_syncs_total", Counter, "Times that the journal was made durable."),
    ("journal_lost_records_total", Counter, "Records that the journal lost."),
    ("journal_write_time_seconds", Histogram, "Time to make records durable."),
];

/// The same for metrics that have no prefix, as in vLLM.
const HTTP_METRICS: &[(&str, Kind, &str)] = &[
    ("http_requests_total", Counter, "Answered requests by handler, method and status."),
    ("http_request_duration_seconds", Histogram, "Time from a request to the end of its answer."),
    (
        "http_request_duration_highr_seconds",
        Histogram,
        "The same for all handlers together, in finer steps.",
    ),
    ("http_request_size_bytes", Histogram, "Length of a request's body as its client tells it."),
    ("http_response_size_bytes", Histogram, "Length of an answer's body."),
];

/// Gives the recorder of this process the texts of all metrics. Call it after the recorder is
/// installed.
pub fn describe_metrics() {
    for (name, kind, help) in METRICS {
        describe(format!("playhouse:{name}"), *kind, help);
    }
    for (name, kind, help) in HTTP_METRICS {
        describe((*name).to_owned(), *kind, help);
    }
}

fn describe(name: String, kind: Kind, help: &'static str) {
    match kind {
        Counter => describe_counter!(name, help),
        Gauge => describe_gauge!(name, help),
        Histogram => describe_histogram!(name, help),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let mut names = BTreeSet::new();
        for (name, kind, help) in METRICS.iter().chain(HTTP_METRICS) {
            assert!(names.insert(name), "{name} stands twice");
            assert!(help.ends_with('.') && help.len() > 10, "{name}: {help}");
            // vLLM's name of a histogram, which dashboards ask for.
            let is_total = name.ends_with("_total") && *name != "iteration_tokens_total";
            assert_eq!(is_total, *kind == Counter, "{name}");
            assert!(!name.ends_with("_ms") && !name.ends_with("_us"), "{name} has no base unit");
        }
    }
}
