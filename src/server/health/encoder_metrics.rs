//! The lines of `/metrics` about the encoder cache of images and sounds. vLLM has none, so the
//! names follow those of its prefix cache.

use std::fmt::Write;

use super::metrics::escaped;
use crate::{api::EncoderCacheView, server::state::AppState};

/// Returns the lines, if the model takes images or sounds and the cache's manager answers.
pub(super) async fn encoder_cache_lines(state: &AppState) -> String {
    let model = state.engine.served_model_names().first().map_or("", String::as_str);
    let view = state.engine.encoder_cache().await;
    view.map(|view| lines(&view, model)).unwrap_or_default()
}

fn lines(view: &EncoderCacheView, model: &str) -> String {
    let EncoderCacheView { cache_size, num_free, .. } = *view;
    let usage = cache_size.saturating_sub(num_free) as f64 / cache_size.max(1) as f64;
    let rows = [
        ("cache_usage_perc", "gauge", usage, "Share of the encoder cache in use"),
        ("cache_items", "gauge", view.num_ready as f64, "Items with embeddings in memory"),
        ("num_items_waiting", "gauge", view.num_encoding as f64, "Items that are being encoded"),
        ("items_total", "counter", view.num_encoded as f64, "Items that were encoded"),
        (
            "received_items_total",
            "counter",
            view.num_received as f64,
            "Of these, items whose embeddings were sent or stored, not computed",
        ),
        ("cache_hits_total", "counter", view.num_hits as f64, "Needs met without encoding"),
    ];
    let mut text = String::new();
    for (name, kind, value, help) in rows {
        let name = format!("playhouse:encoder_{name}");
        let model = escaped(model);
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n\
             {name}{{model_name=\"{model}\",engine=\"0\"}} {value}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_has_lines_of_prometheus() {
        let view = EncoderCacheView {
            cache_size: 100,
            num_free: 75,
            num_ready: 2,
            num_encoded: 7,
            ..EncoderCacheView::default()
        };
        let text = lines(&view, "a\"b");
        let label = r#"{model_name="a\"b",engine="0"}"#;
        for line in [
            format!("playhouse:encoder_cache_usage_perc{label} 0.25"),
            format!("playhouse:encoder_items_total{label} 7"),
            "# TYPE playhouse:encoder_items_total counter".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
