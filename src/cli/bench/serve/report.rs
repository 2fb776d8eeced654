//! The result as vLLM's client shows it, line by line, and as it saves it, field by field.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{
    drafts::DraftCounters,
    metrics::{Metrics, RequestOutput},
};
use crate::cli::bench::distribution::{Distribution, percentile_name};

/// A distribution that `--percentile-metrics` can name.
pub(super) struct Metric {
    /// The name in flags and fields.
    name: &'static str,
    /// The name in the table.
    label: &'static str,
    header: &'static str,
    of: fn(&Metrics) -> &Distribution,
}

/// In the order of the table.
pub(super) const METRICS: [Metric; 5] = [
    Metric { name: "ttft", label: "TTFT", header: "Time to First Token", of: |m| &m.ttft },
    Metric {
        name: "tpot",
        label: "TPOT",
        header: "Time per Output Token (excl. 1st token)",
        of: |m| &m.tpot,
    },
    Metric { name: "itl", label: "ITL", header: "Inter-token Latency", of: |m| &m.itl },
    Metric { name: "e2el", label: "E2EL", header: "End-to-end Latency", of: |m| &m.e2el },
    Metric {
        name: "client_queue_time",
        label: "Client Queue Time",
        header: "Client-side Queueing",
        of: |m| &m.client_queue_time,
    },
];

/// The figures of distributions that are shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shown {
    pub(super) metrics: Vec<String>,
    pub(super) percentiles: Vec<f64>,
    pub(super) max_concurrency: Option<usize>,
    /// Requests a second. Infinite if none is set.
    pub(super) request_rate: f64,
}

impl Shown {
    /// Parses metrics: names separated by commas.
    pub(super) fn parse_metrics(names: &str) -> Result<Vec<String>, String> {
        let known = METRICS.map(|metric| metric.name);
        let check = |name: &str| match known.contains(&name) {
            true => Ok(name.to_owned()),
            false => Err(format!("there is no metric {name:?}; there are {}", known.join(", "))),
        };
        names.split(',').map(str::trim).map(check).collect()
    }

    fn metrics(&self) -> impl Iterator<Item = &'static Metric> {
        METRICS.iter().filter(|metric| self.metrics.iter().any(|name| name == metric.name))
    }
}

const WIDTH: usize = 50;

fn count(text: &mut String, label: &str, value: usize) {
    let _ = writeln!(text, "{label:<40} {value:<10}");
}

fn figure(text: &mut String, label: &str, value: f64) {
    let _ = writeln!(text, "{label:<40} {value:<10.2}");
}

/// Returns the table, with the guesses that the server verified meanwhile.
pub(super) fn table(metrics: &Metrics, shown: &Shown, drafts: Option<&DraftCounters>) -> String {
    let mut text = format!("{:=^WIDTH$}\n", " Serving Benchmark Result ");
    count(&mut text, "Successful requests:", metrics.completed);
    count(&mut text, "Failed requests:", metrics.failed);
    if let Some(max) = shown.max_concurrency {
        count(&mut text, "Maximum request concurrency:", max);
    }
    if shown.request_rate.is_finite() {
        figure(&mut text, "Request rate configured (RPS):", shown.request_rate);
    }
    figure(&mut text, "Benchmark duration (s):", metrics.duration);
    count(&mut text, "Total input tokens:", metrics.total_input);
    count(&mut text, "Total generated tokens:", metrics.total_output);
    figure(&mut text, "Request throughput (req/s):", metrics.request_throughput());
    if let Some(goodput) = metrics.request_goodput {
        figure(&mut text, "Request goodput (req/s):", goodput);
    }
    figure(&mut text, "Output token throughput (tok/s):", metrics.output_throughput());
    figure(&mut text, "Peak output token throughput (tok/s):", metrics.max_output_tokens_per_s);
    figure(&mut text, "Peak concurrent requests:", metrics.max_concurrent_requests as f64);
    figure(&mut text, "Total token throughput (tok/s):", metrics.total_token_throughput());
    for Metric { label, header, of, .. } in shown.metrics() {
        let values = of(metrics);
        let _ = writeln!(text, "{header:-^WIDTH$}");
        figure(&mut text, &format!("Mean {label} (ms):"), values.mean());
        figure(&mut text, &format!("Median {label} (ms):"), values.median());
        for &percent in &shown.percentiles {
            let label = format!("P{} {label} (ms):", percentile_name(percent));
            figure(&mut text, &label, values.percentile(percent));
        }
    }
    text += &drafts.map(DraftCounters::table).unwrap_or_default();
    text + &"=".repeat(WIDTH) + "\n"
}

/// Returns the fields of a saved result, with a list of every request's figures if `detailed`.
pub(super) fn fields(
    metrics: &Metrics,
    outputs: &[RequestOutput],
    shown: &Shown,
    detailed: bool,
) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    let each = |value: fn(&RequestOutput) -> Value| outputs.iter().map(value).collect::<Value>();
    set("duration", json!(metrics.duration));
    set("completed", json!(metrics.completed));
    set("failed", json!(metrics.failed));
    set("total_input_tokens", json!(metrics.total_input));
    set("total_output_tokens", json!(metrics.total_output));
    set("request_throughput", json!(metrics.request_throughput()));
    set("request_goodput", json!(metrics.request_goodput));
    set("output_throughput", json!(metrics.output_throughput()));
    set("total_token_throughput", json!(metrics.total_token_throughput()));
    if detailed {
        set("input_lens", each(|o| json!(o.prompt_len)));
        set("output_lens", each(|o| json!(if o.error.is_some() { 0 } else { o.output_tokens })));
        set("ttfts", each(|o| json!(o.ttft)));
        set("itls", each(|o| json!(o.itl)));
        set("start_times", each(|o| json!(o.start_time)));
        set("generated_texts", each(|o| json!(o.generated_text)));
        set("errors", each(|o| json!(o.error.as_deref().unwrap_or_default())));
    }
    set("latencies", each(|o| json!(o.latency)));
    set("queue_times", each(|o| json!(o.client_queue_time)));
    set("max_output_tokens_per_s", json!(metrics.max_output_tokens_per_s));
    set("max_concurrent_requests", json!(metrics.max_concurrent_requests));
    for Metric { name, of, .. } in shown.metrics() {
        let values = of(metrics);
        set(&format!("mean_{name}_ms"), json!(values.mean()));
        set(&format!("median_{name}_ms"), json!(values.median()));
        set(&format!("std_{name}_ms"), json!(values.std()));
        for &percent in &shown.percentiles {
            let field = format!("p{}_{name}_ms", percentile_name(percent));
            set(&field, json!(values.percentile(percent)));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Goodput;
    use super::*;

    fn example() -> (Metrics, Vec<RequestOutput>, Shown) {
        let output = RequestOutput {
            prompt_len: 8,
            output_tokens: 3,
            ttft: 0.25,
            itl: vec![0.05, 0.05],
            latency: 0.35,
            ..RequestOutput::default()
        };
        let outputs = vec![output];
        let goodput = Goodput::parse(&["e2el:400".to_owned()]).unwrap();
        let shown = Shown {
            metrics: Shown::parse_metrics("ttft,e2el").unwrap(),
            percentiles: vec![50.0, 99.9],
            max_concurrency: Some(4),
            request_rate: 2.0,
        };
        (Metrics::of(&outputs, 0.5, &goodput), outputs, shown)
    }

    #[test]
    fn the_table_has_vllms_lines() {
        let (metrics, _, shown) = example();
        let expected = "\
============ Serving Benchmark Result ============
Successful requests:                     1         
Failed requests:                         0         
Maximum request concurrency:             4         
Request rate configured (RPS):           2.00      
Benchmark duration (s):                  0.50      
Total input tokens:                      8         
Total generated tokens:                  3         
Request throughput (req/s):              2.00      
Request goodput (req/s):                 2.00      
Output token throughput (tok/s):         6.00      
Peak output token throughput (tok/s):    3.00      
Peak concurrent requests:                1.00      
Total token throughput (tok/s):          22.00     
---------------Time to First Token----------------
Mean TTFT (ms):                          250.00    
Median TTFT (ms):                        250.00    
P50 TTFT (ms):                           250.00    
P99.9 TTFT (ms):                         250.00    
----------------End-to-end Latency----------------
Mean E2EL (ms):                          350.00    
Median E2EL (ms):                        350.00    
P50 E2EL (ms):                           350.00    
P99.9 E2EL (ms):                         350.00    
==================================================
";
        assert_eq!(table(&metrics, &shown, None), expected);
    }

    #[test]
    fn lists_are_saved_on_demand() {
        let (metrics, outputs, shown) = example();
        let names = |detailed| -> Vec<String> {
            fields(&metrics, &outputs, &shown, detailed).keys().cloned().collect()
        };
        let lists = [
            "input_lens",
            "output_lens",
            "ttfts",
            "itls",
            "start_times",
            "generated_texts",
            "errors",
        ];
        let (brief, detailed) = (names(false), names(true));
        assert!(lists.iter().all(|list| detailed.iter().any(|name| name == list)));
        assert!(!lists.iter().any(|list| brief.iter().any(|name| name == list)));
        for name in ["mean_ttft_ms", "std_e2el_ms", "p50_ttft_ms", "p99.9_e2el_ms"] {
            assert!(brief.iter().any(|field| field == name), "{name}");
        }
        assert!(!brief.iter().any(|name| name.ends_with("_itl_ms")));
    }

    #[test]
    fn metrics_have_names() {
        let error = Shown::parse_metrics("ttft,itk").unwrap_err();
        assert!(error.starts_with("there is no metric \"itk\"; there are ttft, tpot"), "{error}");
    }
}
