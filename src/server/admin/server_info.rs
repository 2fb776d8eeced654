//! `GET /server_info`: version, settings and state of this server.

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::engines;
use crate::server::{ServerConfig, http::extract::QueryOf, state::AppState};

/// The form of the settings in the fields that vLLM has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ConfigFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InfoQuery {
    config_format: ConfigFormat,
}

/// Leaves out keys and all data that clients sent.
pub(super) async fn server_info(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<InfoQuery>,
) -> Json<Value> {
    let engine = &state.engine;
    let (loaded, info) = (engine.loaded(), engine.model_info());
    let status = engine.status().await.ok().map(|status| {
        json!({
            "open_requests": status.open_requests,
            "restarts": status.restarts,
            "scheduler": status.scheduler,
        })
    });
    let (config, system) = (vllm_config(&state, query.config_format), system());
    Json(json!({
        "vllm_config": config,
        // No variable of vLLM is read. Its routes for development are always there.
        "vllm_env": {"VLLM_SERVER_DEV_MODE": true},
        "system_env": system,
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
        "engines": engine.engines().iter().map(engines::described).collect::<Vec<_>>(),
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
        "system": system,
    }))
}

/// Returns the settings by vLLM's names of their groups, as an object or as its text.
fn vllm_config(state: &AppState, format: ConfigFormat) -> Value {
    let (config, loaded) = (state.engine.config(), state.engine.loaded());
    let info = state.engine.model_info();
    let groups = json!({
        "model_config": {
            "model": loaded.root,
            "served_model_name": state.engine.served_model_names(),
            "dtype": loaded.dtype.name(),
            "max_model_len": info.max_model_len,
            "seed": config.seed,
        },
        "cache_config": {
            "block_size": info.kv_spec.block_size,
            "num_gpu_blocks": info.num_blocks,
            "cache_dtype": loaded.kv_cache_dtype.to_string(),
            "enable_prefix_caching": config.enable_prefix_caching,
        },
        "scheduler_config": {
            "max_num_seqs": config.max_num_seqs,
            "max_num_batched_tokens": config.max_num_batched_tokens,
        },
        "parallel_config": {
            "world_size": 1,
            "data_parallel_size": config.data_parallel_size,
        },
    });
    match format {
        ConfigFormat::Text => groups.to_string().into(),
        ConfigFormat::Json => groups,
    }
}

/// Returns the facts about machine and build. `torch_version` exists for clients that look for it.
fn system() -> Value {
    json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "threads": std::thread::available_parallelism().map_or(1, |count| count.get()),
        "is_debug_build": cfg!(debug_assertions),
        "torch_version": null,
    })
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
