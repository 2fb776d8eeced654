//! The Prometheus recorder, with vLLM's buckets for its histograms.

use std::{path::Path, time::Duration};

use metrics::counter;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;

use crate::{
    cli::logging,
    config::EngineConfig,
    model::ModelConfig,
    server::{ServedEngine, describe_metrics},
};

/// Interval of the recorder's upkeep, and of updates of the count of dropped log lines.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Longest context of the buckets if the model's cannot be read.
const UNKNOWN_CONTEXT: usize = 131_072;

const TIME_TO_FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const INTER_TOKEN_LATENCY: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const ITERATION_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
/// The defaults of the instrumentation that vLLM's server has.
const HTTP_DURATION: &[f64] = &[0.1, 0.5, 1.0];
const HTTP_FINE_DURATION: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
];
const HTTP_SIZE: &[f64] = &[1e2, 1e3, 1e4, 1e5, 1e6, 1e7];
const SLEEP_MODE: &[f64] = &[0.01, 0.1, 1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
const WEB_SOCKET: &[f64] = &[0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

/// Installs the recorder of this process. Must be called before the engine starts, which creates
/// handles.
pub(crate) fn install(config: &EngineConfig) -> Result<PrometheusHandle, BuildError> {
    let model = |folder: &Path| ModelConfig::of_model(folder, config.max_model_len).ok();
    let max_model_len = model(&config.model).map_or(UNKNOWN_CONTEXT, |model| model.max_model_len);
    let handle = builder(max_model_len)?.install_recorder()?;
    describe_metrics();
    Ok(handle)
}

fn builder(max_model_len: usize) -> Result<PrometheusBuilder, BuildError> {
    let tokens = one_two_five(max_model_len);
    let buckets = [
        ("time_to_first_token_seconds", TIME_TO_FIRST_TOKEN),
        ("inter_token_latency_seconds", INTER_TOKEN_LATENCY),
        ("request_time_per_output_token_seconds", INTER_TOKEN_LATENCY),
        ("e2e_request_latency_seconds", REQUEST_LATENCY),
        ("request_queue_time_seconds", REQUEST_LATENCY),
        ("request_inference_time_seconds", REQUEST_LATENCY),
        ("request_prefill_time_seconds", REQUEST_LATENCY),
        ("request_decode_time_seconds", REQUEST_LATENCY),
        ("journal_write_time_seconds", INTER_TOKEN_LATENCY),
        ("iteration_tokens_total", ITERATION_TOKENS),
        ("sleep_mode_operation_duration_seconds", SLEEP_MODE),
        ("websocket_connection_duration_seconds", WEB_SOCKET),
        ("request_params_n", CHOICES),
        ("request_num_preemptions", PREEMPTIONS),
        ("request_params_max_tokens", &tokens),
        ("request_prompt_tokens", &tokens),
        ("request_generation_tokens", &tokens),
        ("request_max_num_generation_tokens", &tokens),
        ("request_prefill_kv_computed_tokens", &tokens),
    ];
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in buckets {
        let name = Matcher::Full(format!("playhouse:{name}"));
        builder = builder.set_buckets_for_metric(name, buckets)?;
    }
    let of_http = [
        ("http_request_duration_seconds", HTTP_DURATION),
        ("http_request_duration_highr_seconds", HTTP_FINE_DURATION),
        ("http_request_size_bytes", HTTP_SIZE),
        ("http_response_size_bytes", HTTP_SIZE),
    ];
    for (name, buckets) in of_http {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
    }
    Ok(builder)
}

/// Returns 1, 2, 5, 10, 20, 50 … up to `max`.
fn one_two_five(max: usize) -> Vec<f64> {
    let decades = (0..).map(|exponent| 10_usize.saturating_pow(exponent));
    let series = decades.flat_map(|decade| [1, 2, 5].map(|digit| decade.saturating_mul(digit)));
    series.take_while(|&bucket| bucket <= max.max(1)).map(|bucket| bucket as f64).collect()
}

/// Maintains the recorder, the count of dropped log lines and the figures of processes while it is
/// polled.
pub(super) async fn keep_up(metrics: PrometheusHandle, served: ServedEngine) {
    let dropped_lines = counter!("playhouse:log_lines_dropped_total");
    let process = Collector::default();
    process.describe();
    loop {
        process.collect();
        #[cfg(target_os = "linux")]
        super::engine_usage::collect(&served.current());
        dropped_lines.absolute(logging::dropped_lines());
        tokio::time::sleep(UPKEEP_INTERVAL).await;
        metrics.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use metrics::{histogram, with_local_recorder};

    use super::*;
    use crate::api::{Role, SystemMetrics};

    /// Without a first sample of 0, Prometheus would miss the first event of each kind.
    #[test]
    fn deaths_and_ends_are_counted_from_none() {
        let recorder = builder(100).unwrap().build_recorder();
        with_local_recorder(&recorder, || SystemMetrics::new("m", "0", 2));
        let text = recorder.handle().render();
        let counted = |name: &str| {
            let start = format!("playhouse:{name}{{");
            let lines = text.lines().filter(|line| line.starts_with(&start));
            lines.filter(|line| line.ends_with(" 0")).count()
        };
        assert_eq!(counted("actor_restarts_total"), Role::ACTORS.len(), "{text}");
        assert_eq!(counted("request_success_total"), 5, "{text}");
        assert_eq!(counted("admission_rejections_total"), 5, "{text}");
    }

    #[test]
    fn token_buckets_are_a_one_two_five_series_up_to_the_context() {
        assert_eq!(one_two_five(100), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(one_two_five(0), [1.0]);
        assert_eq!(one_two_five(4096).last(), Some(&2000.0));
    }

    #[test]
    fn histograms_are_written_with_their_buckets_under_vllms_names() {
        let recorder = builder(100).unwrap().build_recorder();
        with_local_recorder(&recorder, || {
            histogram!("playhouse:time_to_first_token_seconds").record(0.03);
            histogram!("playhouse:request_prompt_tokens").record(3.0);
        });
        let text = recorder.handle().render();
        assert!(
            text.contains("playhouse:time_to_first_token_seconds_bucket{le=\"0.02\"} 0"),
            "{text}"
        );
        assert!(
            text.contains("playhouse:time_to_first_token_seconds_bucket{le=\"0.04\"} 1"),
            "{text}"
        );
        assert!(text.contains("playhouse:request_prompt_tokens_bucket{le=\"100\"} 1"), "{text}");
        assert!(!text.contains("quantile"), "{text}");
    }
}
