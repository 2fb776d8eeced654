//! `GET /metrics`: Prometheus text.

use std::fmt::Write as _;

use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};

use super::encoder_metrics::encoder_cache_lines;
use crate::{
    server::{lora::lora_requests_info, state::AppState},
    version,
};

/// The prefix that metrics have in the program.
const PREFIX: &str = "playhouse";

pub(in crate::server) async fn render(State(state): State<AppState>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let (adapters, encoder_cache) =
        tokio::join!(lora_requests_info(&state), encoder_cache_lines(&state));
    let text = state.metrics.render() + &facts(&state) + &encoder_cache;
    let text = renamed(text, &state.config.metrics_prefix) + &adapters;
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// Returns the metrics that are facts at the time of reading.
fn facts(state: &AppState) -> String {
    let engine = &state.engine;
    let info = engine.model_info();
    let model = engine.served_model_names().first().map_or("", String::as_str);
    let engines: Vec<String> =
        (0..engine.engines().len().max(1)).map(|index| index.to_string()).collect();
    let own = |engine| [("model_name", model), ("engine", engine)];
    let asleep = engine.is_sleeping();
    let states = [
        ("awake", !asleep && !state.control.dozes()),
        // vLLM's level 1. Here the KV cache is released and the weights stay.
        ("weights_offloaded", asleep),
        ("discard_all", false),
    ];
    let mut text = String::new();
    gauge(
        &mut text,
        "engine_sleep_state",
        "1 for the state that the engine sleeps in, or is awake.",
    );
    for engine in &engines {
        for (name, holds) in states {
            let labels = own(engine).into_iter().chain([("sleep_state", name)]);
            sample(&mut text, "engine_sleep_state", labels, u8::from(holds));
        }
    }
    let (block_size, num_blocks) =
        (info.kv_spec.block_size.to_string(), info.num_blocks.to_string());
    let dtype = engine.loaded().kv_cache_dtype.to_string();
    let is_cached = engine.config().enable_prefix_caching.to_string();
    gauge(&mut text, "cache_config_info", "The settings of the KV cache, in labels.");
    let cache = [
        ("block_size", block_size.as_str()),
        ("num_gpu_blocks", &num_blocks),
        ("cache_dtype", &dtype),
        ("enable_prefix_caching", &is_cached),
    ];
    for engine in &engines {
        sample(&mut text, "cache_config_info", own(engine).into_iter().chain(cache), 1);
    }
    let features = version::features().join(",");
    let build = [
        ("version", version::VERSION),
        ("commit", version::COMMIT),
        ("features", &features),
        ("instruction_set", version::instruction_set()),
    ];
    gauge(&mut text, "build_info", "The build of the program, in labels.");
    sample(&mut text, "build_info", build, 1);
    text
}

fn gauge(text: &mut String, name: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {PREFIX}:{name} {help}\n# TYPE {PREFIX}:{name} gauge");
}

fn sample<'a>(
    text: &mut String,
    name: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    value: u8,
) {
    let labels = labels.into_iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let labels: Vec<String> = labels.collect();
    let _ = writeln!(text, "{PREFIX}:{name}{{{}}} {value}", labels.join(","));
}

/// Returns a label's value as Prometheus reads it.
pub(in crate::server) fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Returns the text with another prefix of the metrics' names.
fn renamed(text: String, prefix: &str) -> String {
    if prefix == PREFIX {
        return text;
    }
    let mut renamed = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let start = ["# HELP ", "# TYPE "].into_iter().find(|start| line.starts_with(start));
        let start = start.unwrap_or_default();
        let name = line[start.len()..].strip_prefix(PREFIX).filter(|rest| rest.starts_with(':'));
        match name {
            Some(rest) => renamed.extend([start, prefix, rest]),
            None => renamed.push_str(line),
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_get_another_prefix() {
        let text = "# HELP playhouse:a Of playhouse:b.\n# TYPE playhouse:a gauge\n\
                    playhouse:a{model_name=\"playhouse:x\"} 1\nprocess_open_fds 3\n";
        let expected = "# HELP vllm:a Of playhouse:b.\n# TYPE vllm:a gauge\n\
                        vllm:a{model_name=\"playhouse:x\"} 1\nprocess_open_fds 3\n";
        assert_eq!(renamed(text.to_owned(), "vllm"), expected);
        assert_eq!(renamed(text.to_owned(), "playhouse"), text);
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
        let mut text = String::new();
        sample(&mut text, "a", [("b", "c\"d")], 1);
        assert_eq!(text, "playhouse:a{b=\"c\\\"d\"} 1\n");
    }
}
