//! The environment variables of vLLM. They have no effect, and a server names those that are set.

/// Variables, and the way to their effect here.
pub(super) const VARIABLES: &[(&str, &str)] = &[
    // A server that ignored it without a word would be open.
    ("VLLM_API_KEY", "PLAYHOUSE_API_KEY or --api-key sets a key"),
    ("VLLM_PORT", "--port is the server's port"),
    ("VLLM_HOST_IP", "--host is the server's address"),
    ("VLLM_USE_MODELSCOPE", "models are fetched from Hugging Face's hub, or from HF_ENDPOINT"),
    ("VLLM_CACHE_ROOT", "--download-dir and --weights-cache name folders"),
    ("VLLM_LOGGING_LEVEL", "--log-level sets the level"),
    ("VLLM_LOGGING_CONFIG_PATH", LOG),
    ("VLLM_LOGGING_PREFIX", LOG),
    ("VLLM_CONFIGURE_LOGGING", LOG),
    ("VLLM_LOG_STATS_INTERVAL", "--log-stats-interval-secs sets the interval"),
    ("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "the log has no content of answers"),
    ("VLLM_SERVER_DEV_MODE", "--enable-admin-routes serves the routes of operators"),
    ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "--allow-runtime-lora-updating does it"),
    ("VLLM_LORA_RESOLVER_CACHE_DIR", "--lora-resolver-dir names the folder"),
    ("VLLM_LORA_RESOLVER_HF_REPO_LIST", "--lora-modules takes names of adapters on the hub"),
    ("VLLM_PLUGINS", "an embedding program registers its own code in Rust"),
    ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "--timeout-keep-alive sets the time"),
    ("VLLM_HTTP_MAX_REQUEST_BODY_SIZE", "--body-limit-bytes sets the limit"),
    ("VLLM_MAX_N_SEQUENCES", "--max-n-sequences sets the limit"),
    ("VLLM_MAX_COMPLETION_PROMPTS", "--max-completion-prompts sets the limit"),
    ("VLLM_MAX_STOP_STRINGS", "--max-stop-strings sets the limit"),
    ("VLLM_MAX_NUM_BAD_WORDS", "--max-num-bad-words sets the limit"),
    ("VLLM_IMAGE_FETCH_TIMEOUT", FETCH_TIME),
    ("VLLM_VIDEO_FETCH_TIMEOUT", FETCH_TIME),
    ("VLLM_AUDIO_FETCH_TIMEOUT", FETCH_TIME),
    ("VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB", "--media-max-bytes sets the limit"),
    ("VLLM_MAX_IMAGE_PIXELS", "--mm-max-pixels sets the limit"),
    ("VLLM_CPU_KVCACHE_SPACE", "--kv-cache-memory-bytes sets the memory"),
    ("VLLM_CPU_OMP_THREADS_BIND", THREADS),
    ("VLLM_CPU_NUM_OF_RESERVED_CPU", THREADS),
    ("VLLM_BATCH_INVARIANT", "--deterministic does it on a GPU, and a processor needs nothing"),
    ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "--hf-overrides sets max_position_embeddings"),
    (
        "VLLM_ENABLE_RESPONSES_API_STORE",
        "responses are stored; --responses-store-max-count 0 stops it",
    ),
    ("VLLM_ENABLE_COHERE_API", "there are no routes of Cohere's chat"),
    ("VLLM_ENFORCE_STRICT_TOOL_CALLING", "a tool or a request says whether its calls are strict"),
    ("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "a server recovers from faults by itself"),
];

const LOG: &str = "--log-level and --log-format set the lines of the log";
const FETCH_TIME: &str = "--media-fetch-timeout-secs sets the time";
const THREADS: &str = "--threads and --pin-threads choose the threads";

/// The beginning of all their names.
const PREFIX: &str = "VLLM_";

/// Returns a note for each of these variables that has a counterpart here, and one for all others
/// of vLLM. Kubernetes sets variables like `VLLM_SERVICE_HOST` for a service named `vllm`: they are
/// left out. Values are not shown.
pub(in crate::cli) fn notes<'a>(set: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let (mut notes, mut others) = (Vec::new(), Vec::new());
    for (name, value) in set {
        let is_of_service = name.contains("_SERVICE_") || name.contains("_PORT_");
        if !name.starts_with(PREFIX) || is_of_service || value.starts_with("tcp://") {
            continue;
        }
        match VARIABLES.iter().find(|(known, _)| *known == name) {
            Some((_, how)) => notes.push(format!("{name} changes nothing here: {how}")),
            None => others.push(name),
        }
    }
    others.sort_unstable();
    if !others.is_empty() {
        notes.push(format!("variables that are vLLM's alone: {}", others.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_are_set_are_named_without_their_values() {
        let set = [
            ("PATH", "/bin"),
            ("VLLM_LOGGING_LEVEL", "DEBUG"),
            ("VLLM_USE_V1", "1"),
            ("VLLM_ATTENTION_BACKEND", "secret"),
            ("VLLM_SERVICE_HOST", "10.0.0.1"),
            ("VLLM_PORT_8000_TCP", "x"),
            ("VLLM_PORT", "tcp://10.0.0.1:8000"),
        ];
        assert_eq!(
            notes(set),
            [
                "VLLM_LOGGING_LEVEL changes nothing here: --log-level sets the level",
                "variables that are vLLM's alone: VLLM_ATTENTION_BACKEND, VLLM_USE_V1",
            ]
        );
        let port = "VLLM_PORT changes nothing here: --port is the server's port";
        assert_eq!(notes([("VLLM_PORT", "8000")]), [port]);
    }
}
