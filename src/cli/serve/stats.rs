//! The log line about throughput and queues, in vLLM's words. Its figures are those of the metrics.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::Instant;

/// Logs a line every `interval_s` seconds in which the engine was busy. 0 means never.
pub(super) async fn log(metrics: PrometheusHandle, interval_s: f64) {
    if interval_s <= 0.0 {
        return;
    }
    // An interval longer than can be waited for means never.
    let interval = Duration::try_from_secs_f64(interval_s.max(0.1)).unwrap_or(Duration::MAX);
    let (mut before, mut then) = (Snapshot::default(), Instant::now());
    loop {
        tokio::time::sleep(interval).await;
        let now = Snapshot::read(&metrics.render());
        let seconds = then.elapsed().as_secs_f64();
        if now.is_busy_since(&before) {
            tracing::info!("{}", now.line(&before, seconds));
        }
        (before, then) = (now, Instant::now());
    }
}

/// The metrics of the line.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Snapshot {
    prompt_tokens: f64,
    generation_tokens: f64,
    running: f64,
    waiting: f64,
    kv_cache_usage: f64,
    prefix_queries: f64,
    prefix_hits: f64,
}

impl Snapshot {
    /// Reads the metrics from the text that a Prometheus server would scrape.
    fn read(scrape: &str) -> Self {
        let sum = |name| {
            let lines = scrape.lines().filter_map(|line| sample(line, name));
            lines.sum()
        };
        let usage = "playhouse:kv_cache_usage_perc";
        let num_engines = scrape.lines().filter_map(|line| sample(line, usage)).count();
        Self {
            prompt_tokens: sum("playhouse:prompt_tokens_total"),
            generation_tokens: sum("playhouse:generation_tokens_total"),
            running: sum("playhouse:num_requests_running"),
            waiting: sum("playhouse:num_requests_waiting"),
            kv_cache_usage: sum(usage) / num_engines.max(1) as f64,
            prefix_queries: sum("playhouse:prefix_cache_queries_total"),
            prefix_hits: sum("playhouse:prefix_cache_hits_total"),
        }
    }

    fn is_busy_since(&self, before: &Self) -> bool {
        let moved = self.prompt_tokens > before.prompt_tokens
            || self.generation_tokens > before.generation_tokens;
        moved || self.running > 0.0 || self.waiting > 0.0
    }

    fn line(&self, before: &Self, seconds: f64) -> String {
        let rate = |now: f64, before: f64| (now - before).max(0.0) / seconds;
        let hit_rate = match self.prefix_queries > 0.0 {
            true => self.prefix_hits / self.prefix_queries,
            false => 0.0,
        };
        format!(
            "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} \
             tokens/s, Running: {} reqs, Waiting: {} reqs, KV cache usage: {:.1}%, Prefix cache \
             hit rate: {:.1}%",
            rate(self.prompt_tokens, before.prompt_tokens),
            rate(self.generation_tokens, before.generation_tokens),
            self.running,
            self.waiting,
            self.kv_cache_usage * 100.0,
            hit_rate * 100.0,
        )
    }
}

/// Returns the value of a sample if the line is of exactly this metric.
fn sample(line: &str, name: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let value = match rest.strip_prefix('{') {
        Some(labelled) => labelled.rsplit_once('}')?.1,
        None => rest.strip_prefix(' ')?,
    };
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "\
# TYPE playhouse:prompt_tokens_total counter
playhouse:prompt_tokens_total{model_name=\"a {b}\",engine=\"0\"} 300
playhouse:generation_tokens_total{engine=\"0\"} 50
playhouse:num_requests_running 2
playhouse:num_requests_waiting{engine=\"0\"} 1
playhouse:num_requests_waiting_by_reason{reason=\"capacity\"} 1
playhouse:kv_cache_usage_perc{engine=\"0\"} 0.125
playhouse:prefix_cache_queries_total 200
playhouse:prefix_cache_hits_total 50
";

    #[test]
    fn the_line_is_vllms() {
        let before = Snapshot { prompt_tokens: 100.0, ..Snapshot::default() };
        let line = Snapshot::read(SCRAPE).line(&before, 10.0);
        assert_eq!(
            line,
            "Engine 000: Avg prompt throughput: 20.0 tokens/s, Avg generation throughput: 5.0 \
             tokens/s, Running: 2 reqs, Waiting: 1 reqs, KV cache usage: 12.5%, Prefix cache hit \
             rate: 25.0%"
        );
    }

    #[test]
    fn an_idle_engine_is_silent() {
        let idle = Snapshot { generation_tokens: 9.0, ..Snapshot::default() };
        assert!(!idle.is_busy_since(&idle));
        assert!(idle.is_busy_since(&Snapshot::default()));
        assert!(Snapshot { waiting: 1.0, ..idle }.is_busy_since(&idle));
    }
}
