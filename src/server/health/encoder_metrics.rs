//! The lines of `/metrics` about the encoder cache of images and sounds. vLLM has none, so the
//! names follow those of its prefix cache.

use std::fmt::Write;

use super::metrics::escaped;
use crate::{api::EncoderCacheView, server::state::AppState};

/// Name, kind, help, and how the value is read.
type Row = (&'static str, &'static str, &'static str, fn(&EncoderCacheView) -> f64);

const ROWS: [Row; 6] = [
    ("cache_usage_perc", "gauge", "Share of the encoder cache in use", usage),
    ("cache_items", "gauge", "Items with embeddings in memory", |view| view.num_ready as f64),
    ("num_items_waiting", "gauge", "Items that are being encoded", |view| view.num_encoding as f64),
    ("items_total", "counter", "Items that were encoded", |view| view.num_encoded as f64),
    (
        "received_items_total",
        "counter",
        "Of these, items whose embeddings were sent or stored, not computed",
        |view| view.num_received as f64,
    ),
    ("cache_hits_total", "counter", "Needs met without encoding", |view| view.num_hits as f64),
];

/// Returns the lines, if the model takes images or sounds. An engine whose manager does not answer
/// has none.
pub(super) async fn encoder_cache_lines(state: &AppState) -> String {
    let model = state.engine.served_model_names().first().map_or("", String::as_str);
    lines(&state.engine.encoder_caches().await, model)
}

fn usage(view: &EncoderCacheView) -> f64 {
    let EncoderCacheView { cache_size, num_free, .. } = *view;
    cache_size.saturating_sub(num_free) as f64 / cache_size.max(1) as f64
}

fn lines(views: &[Option<EncoderCacheView>], model: &str) -> String {
    let (mut text, model) = (String::new(), escaped(model));
    if views.iter().all(Option::is_none) {
        return text;
    }
    for (name, kind, help, value) in ROWS {
        let name = format!("playhouse:encoder_{name}");
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (engine, view) in views.iter().enumerate() {
            let Some(view) = view else { continue };
            let value = value(view);
            let labels = format!("model_name=\"{model}\",engine=\"{engine}\"");
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
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
        assert_eq!(lines(&[None], "demo"), "");
        let text = lines(&[None, Some(view)], "a\"b");
        let label = r#"{model_name="a\"b",engine="1"}"#;
        for line in [
            format!("playhouse:encoder_cache_usage_perc{label} 0.25"),
            format!("playhouse:encoder_items_total{label} 7"),
            "# TYPE playhouse:encoder_items_total counter".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
