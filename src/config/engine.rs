//! The settings of one engine.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{gguf::is_gguf, model_files};

use super::{
    choice::{
        ActivationQuantization, Device, Dtype, GenerationConfigSource, KvCacheDtype, LoadFormat,
        Quantization, SchedulingPolicy,
    },
    quantity,
};

/// Everything that [`Engine::spawn`](crate::Engine::spawn) is told. Names and defaults are vLLM's
/// where it has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Folder of a Hugging Face model: `config.json`, `*.safetensors`, `tokenizer.json`; or a GGUF
    /// file. By default the demo model, which is part of the program.
    pub model: PathBuf,
    /// Folder, `tokenizer.json` or GGUF file to take the tokenizer from; `None`: the model.
    pub tokenizer: Option<PathBuf>,
    /// Names that requests may use, the first is the one in answers; empty: see
    /// [`EngineConfig::served_names`].
    #[serde(deserialize_with = "quantity::texts")]
    pub served_model_name: Vec<String>,
    /// Where the weights come from: the model's files, or nowhere.
    pub load_format: LoadFormat,
    /// The format that weights are kept and computed in.
    pub dtype: Dtype,
    /// Folder to keep packed weights in, so that later starts map them instead of packing; `None`:
    /// nothing is kept.
    pub weights_cache: Option<PathBuf>,
    /// How the linear layers of a checkpoint that is not quantized are quantized at load.
    pub quantization: Quantization,
    /// Inputs that share a scale where weights are quantized to 4 bits: 32, 64 or 128. Small groups
    /// are nearer to the model, large ones smaller and faster.
    #[serde(deserialize_with = "quantity::count")]
    pub quantization_group_size: usize,
    /// What activations are when they meet quantized weights, be those made at load or ready-made.
    pub activation_quantization: ActivationQuantization,
    /// Tokens at most of prompt and output together; `None`: what the model was made for.
    #[serde(deserialize_with = "quantity::some_tokens")]
    pub max_model_len: Option<usize>,
    /// What the model runs on.
    pub device: Device,
    /// Tokens that a KV cache block holds.
    #[serde(deserialize_with = "quantity::count")]
    pub block_size: usize,
    /// Bytes of the KV cache; `None`: see [`EngineConfig::kv_cache_budget_bytes`].
    #[serde(deserialize_with = "quantity::some_bytes")]
    pub kv_cache_memory_bytes: Option<u64>,
    /// Share of a GPU's memory that weights, activations and KV cache may take together. On a CPU
    /// it says nothing, nor where the driver does not tell how much memory there is.
    #[serde(deserialize_with = "quantity::number")]
    pub gpu_memory_utilization: f64,
    /// Whether a GPU's tokens may not depend on the batch: products of many tokens go without its
    /// tensor cores then. The CPU's tokens never depend on it, nor those of a GPU without such.
    #[serde(deserialize_with = "quantity::switch")]
    pub deterministic: bool,
    /// Whether the ways in which a GPU's tensor cores can multiply are measured where the engine
    /// starts, for each shape that is not yet known; otherwise the first that works is taken.
    #[serde(deserialize_with = "quantity::switch")]
    pub autotune: bool,
    /// Whether a GPU's steps of single tokens are launched kernel by kernel, in place of being
    /// recorded once and replayed.
    #[serde(deserialize_with = "quantity::switch")]
    pub enforce_eager: bool,
    /// Blocks of the KV cache, the null block among them, whatever the memory settings say.
    #[serde(deserialize_with = "quantity::some_count")]
    pub num_gpu_blocks_override: Option<usize>,
    /// The format that keys and values are kept in.
    pub kv_cache_dtype: KvCacheDtype,
    /// Whether requests share the KV blocks of a common prefix.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_prefix_caching: bool,
    /// Tokens at most that one step computes.
    #[serde(deserialize_with = "quantity::count")]
    pub max_num_batched_tokens: usize,
    /// Requests at most that run at a time. On a CPU a step reads all weights once, however many
    /// requests share it, so throughput grows with the batch as it does on a GPU: vLLM's 256
    /// stands, and the KV cache's size is what limits small machines.
    #[serde(deserialize_with = "quantity::count")]
    pub max_num_seqs: usize,
    /// Tokens at most of one prompt in a step that others could share; 0: no such limit.
    #[serde(deserialize_with = "quantity::count")]
    pub long_prefill_token_threshold: usize,
    /// Whether a prompt may be computed over several steps.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_chunked_prefill: bool,
    /// Whether a step is planned, and waits at the device, while the one before is computed. `None`: on
    /// GPUs.
    #[serde(deserialize_with = "quantity::some_switch")]
    pub async_scheduling: Option<bool>,
    /// Who is served first.
    pub scheduling_policy: SchedulingPolicy,
    /// Under the priority policy, seconds after which a waiting request goes first, so that none
    /// waits for ever; 0: no bound.
    #[serde(deserialize_with = "quantity::number")]
    pub priority_age_bound_s: f64,
    /// Whether a request is admitted only when its whole prompt fits the free blocks.
    #[serde(deserialize_with = "quantity::switch")]
    pub scheduler_reserve_full_isl: bool,
    /// Share of the blocks that admission leaves free for those already running.
    #[serde(deserialize_with = "quantity::number")]
    pub watermark: f64,
    /// Requests at most that wait to run for the first time; further ones get 503. `None`: only
    /// `max_num_requests` bounds them.
    #[serde(deserialize_with = "quantity::some_count")]
    pub max_num_queued_reqs: Option<usize>,
    /// Prompt tokens at most of the requests that wait to run; further ones get 503. `None`: no
    /// such limit.
    #[serde(deserialize_with = "quantity::some_tokens")]
    pub max_num_queued_tokens: Option<usize>,
    /// Open requests at most, the hard bound on the engine's memory; further ones get 503.
    #[serde(deserialize_with = "quantity::count")]
    pub max_num_requests: usize,
    /// Memory for requests, bytes: their bodies and what becomes of them, stored responses, and
    /// outputs that wait for their readers. What does not fit waits, then gets 503. `None`: see
    /// [`EngineConfig::request_memory_bytes`].
    #[serde(deserialize_with = "quantity::some_bytes")]
    pub max_request_memory_bytes: Option<u64>,
    /// Open requests at most of one API key; further ones get 429. `None`: no such quota.
    #[serde(deserialize_with = "quantity::quota")]
    pub quota_max_open_requests: Option<usize>,
    /// Prompt and output tokens at most of one API key within a minute; further requests get 429.
    /// `None`: no such quota.
    #[serde(deserialize_with = "quantity::quota")]
    pub quota_tokens_per_minute: Option<usize>,
    /// Seconds after which a request whose client takes nothing of its output is aborted.
    #[serde(deserialize_with = "quantity::number")]
    pub reader_timeout_secs: f64,
    /// Seconds that any step of the model may take, not counting time in which its threads lack a
    /// processor; a long step may take ten times its prediction. `None`: 0.1 on CPUs, and 2 on GPUs,
    /// where a new shape may have to be compiled.
    #[serde(deserialize_with = "quantity::some_number")]
    pub min_step_deadline_secs: Option<f64>,
    /// Seconds that compiling the grammar of a structured output may take; a request whose grammar
    /// takes longer gets 400.
    #[serde(deserialize_with = "quantity::number")]
    pub grammar_timeout_secs: f64,
    /// Whether JSON that a request constrains is compact, with at most one space behind a comma or a
    /// colon, unless the request says otherwise: small models else write white space on and on.
    #[serde(deserialize_with = "quantity::switch")]
    pub disable_any_whitespace: bool,
    /// Seconds at one message after which an actor is replaced, whatever kept it. A handler that
    /// hangs, rather than lacks a processor, is found after 0.1 s or ten times what it is known to take.
    #[serde(deserialize_with = "quantity::number")]
    pub hang_timeout_secs: f64,
    /// How many times as often as by default actors may die before more than themselves is
    /// replaced, and in the end the process gives up. `None`: once; in a build with the feature
    /// `chaos`, which is made to be struck, without limit.
    #[serde(deserialize_with = "quantity::some_number")]
    pub restart_tolerance: Option<f64>,
    /// Log-probabilities at most that a request may ask for, a position.
    #[serde(deserialize_with = "quantity::count")]
    pub max_logprobs: usize,
    /// Where default sampling parameters come from.
    pub generation_config: GenerationConfigSource,
    /// File with a chat template to use instead of the model's.
    pub chat_template: Option<PathBuf>,
    /// Seeds the draw of seeds for requests that bring none.
    #[serde(deserialize_with = "quantity::count_u64")]
    pub seed: u64,
    /// Threads that compute; `None`: one a processor core this process may use.
    #[serde(deserialize_with = "quantity::some_count")]
    pub threads: Option<usize>,
    /// Whether each of them is bound to a core, if there is one for each. Left to itself, a busy
    /// system often has two of them take turns on one core.
    #[serde(deserialize_with = "quantity::switch")]
    pub pin_threads: bool,
    /// Actors that template and tokenize.
    #[serde(deserialize_with = "quantity::count")]
    pub num_input_processors: usize,
    /// Pairs of a detokenizer and an output streamer.
    #[serde(deserialize_with = "quantity::count")]
    pub num_egress_shards: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            model: model_files::demo_model(),
            tokenizer: None,
            served_model_name: Vec::new(),
            load_format: LoadFormat::default(),
            dtype: Dtype::default(),
            weights_cache: None,
            quantization: Quantization::default(),
            quantization_group_size: 32,
            activation_quantization: ActivationQuantization::default(),
            max_model_len: None,
            device: Device::default(),
            block_size: 16,
            kv_cache_memory_bytes: None,
            gpu_memory_utilization: 0.92,
            deterministic: false,
            autotune: true,
            enforce_eager: false,
            num_gpu_blocks_override: None,
            kv_cache_dtype: KvCacheDtype::default(),
            enable_prefix_caching: true,
            max_num_batched_tokens: 2048,
            max_num_seqs: 256,
            long_prefill_token_threshold: 0,
            async_scheduling: None,
            enable_chunked_prefill: true,
            scheduling_policy: SchedulingPolicy::default(),
            priority_age_bound_s: 60.0,
            scheduler_reserve_full_isl: true,
            watermark: 0.0,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            max_num_requests: 16_384,
            max_request_memory_bytes: None,
            quota_max_open_requests: None,
            quota_tokens_per_minute: None,
            reader_timeout_secs: 60.0,
            min_step_deadline_secs: None,
            grammar_timeout_secs: 10.0,
            disable_any_whitespace: true,
            hang_timeout_secs: 5.0,
            restart_tolerance: None,
            max_logprobs: 20,
            generation_config: GenerationConfigSource::default(),
            chat_template: None,
            seed: 0,
            threads: None,
            pin_threads: true,
            num_input_processors: 2,
            num_egress_shards: 2,
        }
    }
}

impl EngineConfig {
    /// The defaults for the model in this folder.
    #[must_use]
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self { model: model.into(), ..Self::default() }
    }

    /// The names that requests may use: the configured ones; else the model's path as given, as in
    /// vLLM; `demo-model` for the demo model.
    #[must_use]
    pub fn served_names(&self) -> Vec<String> {
        if !self.served_model_name.is_empty() {
            return self.served_model_name.clone();
        }
        if model_files::is_demo_model(&self.model) {
            return vec![DEMO_MODEL.to_owned()];
        }
        vec![self.model.to_string_lossy().into_owned()]
    }

    /// Folder, or GGUF file, that holds the tokenizer.
    #[must_use]
    pub fn tokenizer_path(&self) -> &Path {
        match &self.tokenizer {
            Some(file) if file.is_file() && !is_gguf(file) => file.parent().unwrap_or(file),
            Some(folder) => folder,
            None => &self.model,
        }
    }
}

const DEMO_MODEL: &str = "demo-model";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_served_under_its_path_as_given() {
        let config = EngineConfig::new("models/tiny");
        assert_eq!(config.served_names(), ["models/tiny"]);
        let named = EngineConfig { served_model_name: vec!["a".into(), "b".into()], ..config };
        assert_eq!(named.served_names(), ["a", "b"]);
        assert_eq!(EngineConfig::default().served_names(), ["demo-model"]);
    }
}
