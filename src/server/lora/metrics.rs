//! vLLM's gauge of adapters. Its labels change with the requests, so it is written when it is read,
//! and no label outlives its requests.

use std::{fmt::Write, time::Duration};

use crate::server::state::{AppState, unix_seconds};

/// Longest wait for the scheduler's figures.
const PATIENCE: Duration = Duration::from_millis(200);

/// Returns the lines of `vllm:lora_requests_info`; none if adapters are not enabled or the
/// scheduler does not answer.
pub(in crate::server) async fn lora_requests_info(state: &AppState) -> String {
    let config = state.engine.config();
    if !config.enable_lora {
        return String::new();
    }
    let Ok(Ok(status)) = tokio::time::timeout(PATIENCE, state.engine.status()).await else {
        return String::new();
    };
    let adapters = &status.scheduler.adapters;
    let model = state.engine.served_model_names().first().map_or("", String::as_str);
    let labels = [
        ("model_name", model.to_owned()),
        ("engine", "0".to_owned()),
        ("max_lora", config.max_loras.to_string()),
        ("running_lora_adapters", adapters.running.join(",")),
        ("waiting_lora_adapters", adapters.waiting.join(",")),
    ];
    let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(&value)));
    let mut lines = String::from(
        "# HELP vllm:lora_requests_info Adapters of running and waiting requests\n\
         # TYPE vllm:lora_requests_info gauge\n",
    );
    let _ = writeln!(lines, "vllm:lora_requests_info{{{}}} {}", labels.join(","), unix_seconds());
    lines
}

/// Returns a label's value as Prometheus reads it.
pub(in crate::server) fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
