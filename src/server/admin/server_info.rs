//! `GET /server_info`: version, settings and state of this server.

use axum::{Json, extract::State};
use serde_json::{Value, json};

use crate::server::{ServerConfig, state::AppState};

/// Leaves out keys and all data that clients sent.
pub(super) async fn server_info(State(state): State<AppState>) -> Json<Value> {
    let engine = &state.engine;
    let (loaded, info) = (engine.loaded(), engine.model_info());
    let status = engine.status().await.ok().map(|status| {
        json!({
            "open_requests": status.open_requests,
            "restarts": status.restarts,
            "scheduler": status.scheduler,
        })
    });
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "health": format!("{:?}", engine.health()).to_lowercase(),
        "is_paused": engine.pause_state() != Default::default(),
        "is_sleeping": engine.is_sleeping(),
        "epoch": engine.epoch().0,
        "engine_process": engine.engine_process().map(|process| json!({
            "pid": process.pid,
            "num_starts": process.num_starts,
            "ends": process.ends,
        })),
        "model": {
            "root": loaded.root,
            "served_model_names": engine.served_model_names(),
            "architecture": loaded.architecture,
            "dtype": format!("{:?}", loaded.dtype).to_lowercase(),
            "quantized_weights": loaded.quantized_weights.as_ref().map(|quantized| json!({
                "format": quantized.format,
                "activations": quantized.activations.name(),
            })),
            "kv_cache_dtype": loaded.kv_cache_dtype.to_string(),
            "vocab_size": info.vocab_size,
            "max_model_len": info.max_model_len,
            "eos_token_ids": info.eos_token_ids,
            "block_size": info.kv_spec.block_size,
            "num_blocks": info.num_blocks,
            "kv_cache_bytes": loaded.kv_cache_bytes,
        },
        "engine_config": engine.config(),
        "server_config": without_secrets(&state.config),
        "status": status,
        "system": {
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "threads": std::thread::available_parallelism().map_or(1, |count| count.get()),
        },
    }))
}

/// Returns the settings, with the number of keys in place of the keys.
fn without_secrets(config: &ServerConfig) -> Value {
    let mut shown = serde_json::to_value(config).unwrap_or_default();
    for (name, keys) in [("api_key", &config.api_keys), ("admin_api_key", &config.admin_api_keys)] {
        shown[name] = format!("{} hidden", keys.len()).into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let api_keys = vec!["hunter2".to_owned()];
        let admin_api_keys = vec!["hunter22".to_owned()];
        let config = ServerConfig { api_keys, admin_api_keys, ..ServerConfig::default() };
        let shown = without_secrets(&config);
        assert!(!shown.to_string().contains("hunter2"));
        assert_eq!(
            (&shown["api_key"], &shown["admin_api_key"]),
            (&"1 hidden".into(), &"1 hidden".into())
        );
        assert_eq!(shown["port"], 8000);
    }
}
