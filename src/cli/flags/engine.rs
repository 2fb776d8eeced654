//! Flags about the model and how it is run.

use clap::Args;
use serde::Serialize;

use crate::config::{Key, Origin, layer::Entry};

/// Flags of every command that loads a model.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Model")]
pub(crate) struct EngineFlags {
    /// Folder of a Hugging Face model, or a GGUF file [default: the demo model]
    #[arg(long, short = 'm', value_name = "FOLDER")]
    pub(crate) model: Option<String>,
    /// Folder, tokenizer.json or GGUF file to take the tokenizer from [default: the model]
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer: Option<String>,
    /// Name that requests may use; may be repeated, the first is shown [default: the model's path]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) served_model_name: Vec<String>,
    /// Where the weights come from: auto (the model's files) or dummy (made up, for measuring)
    /// [default: auto]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) load_format: Option<String>,
    /// Format of the weights: auto, float32, bfloat16 or, on a GPU, float16 [default: auto]
    #[arg(long, value_name = "DTYPE")]
    pub(crate) dtype: Option<String>,
    /// Folder to keep packed weights in, for faster later starts [default: none are kept]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) weights_cache: Option<String>,
    /// Quantize the weights at load: none, int8 or int4 [default: none]
    #[arg(long, value_name = "SCHEME")]
    pub(crate) quantization: Option<String>,
    /// Inputs that share a scale in int4: 32, 64 or 128 [default: 32]
    #[arg(long, value_name = "N")]
    pub(crate) quantization_group_size: Option<String>,
    /// Activations beside quantized weights: auto, none (they stay floats) or int8 [default: auto]
    #[arg(long, value_name = "SCHEME")]
    pub(crate) activation_quantization: Option<String>,
    /// Tokens at most of prompt and output together, such as 4096 or 4K [default: the model's]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_model_len: Option<String>,
    /// auto, vllm (ignore the model's sampling defaults), or a folder [default: auto]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) generation_config: Option<String>,
    /// File with a chat template to use instead of the model's
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<String>,
    /// Log-probabilities at most that a request may ask for [default: 20]
    #[arg(long, value_name = "N")]
    pub(crate) max_logprobs: Option<String>,

    /// What the model runs on: auto, cpu or, where it was built with it, cuda[:N] or wgpu[:N]
    /// [default: auto]
    #[arg(long, value_name = "DEVICE", help_heading = "Machine")]
    pub(crate) device: Option<String>,
    /// Threads that compute [default: one a core]
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) threads: Option<String>,
    /// Bind each of them to a core, if there is one for each [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Machine"
    )]
    pub(crate) pin_threads: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "pin_threads", help_heading = "Machine")]
    #[serde(skip)]
    pub(crate) no_pin_threads: bool,
    /// Bytes of the KV cache, such as 4GiB [default: half of the free memory, on a GPU what
    /// --gpu-memory-utilization leaves, if it needs that]
    #[arg(long, value_name = "BYTES", help_heading = "Machine")]
    pub(crate) kv_cache_memory_bytes: Option<String>,
    /// Share of a GPU's memory for weights, activations and KV cache [default: 0.92]
    #[arg(long, value_name = "SHARE", help_heading = "Machine")]
    pub(crate) gpu_memory_utilization: Option<String>,
    /// On a GPU, tokens that do not depend on the batch: without its tensor cores [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Machine"
    )]
    pub(crate) deterministic: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "deterministic", help_heading = "Machine")]
    #[serde(skip)]
    pub(crate) no_deterministic: bool,
    /// Measure at the start which way a GPU's tensor cores multiply fastest, where that is not yet
    /// known [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Machine"
    )]
    pub(crate) autotune: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "autotune", help_heading = "Machine")]
    #[serde(skip)]
    pub(crate) no_autotune: bool,
    /// On a GPU, launch small steps kernel by kernel, in place of recording them once and replaying them
    /// [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Machine"
    )]
    pub(crate) enforce_eager: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "enforce_eager", help_heading = "Machine")]
    #[serde(skip)]
    pub(crate) no_enforce_eager: bool,
    /// Blocks of the KV cache, whatever its bytes
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) num_gpu_blocks_override: Option<String>,
    /// Format of the KV cache: auto, float32, bfloat16, int8 or, on a GPU, float16
    /// [default: auto]
    #[arg(long, value_name = "DTYPE", help_heading = "Machine")]
    pub(crate) kv_cache_dtype: Option<String>,
    /// Tokens a KV cache block holds [default: 16]
    #[arg(long, value_name = "TOKENS", help_heading = "Machine")]
    pub(crate) block_size: Option<String>,
    /// Actors that template and tokenize [default: 2]
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) num_input_processors: Option<String>,
    /// Pairs of a detokenizer and an output streamer [default: 2]
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) num_egress_shards: Option<String>,

    /// Seconds after which a request is aborted whose client reads nothing [default: 60]
    #[arg(long, value_name = "SECONDS", help_heading = "Recovery")]
    pub(crate) reader_timeout_secs: Option<String>,
    /// Seconds that any step of the model may take [default: 0.1 on CPUs, 2 on GPUs]
    #[arg(long, value_name = "SECONDS", help_heading = "Recovery")]
    pub(crate) min_step_deadline_secs: Option<String>,
    /// Seconds that compiling the grammar of a structured output may take [default: 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Limits")]
    pub(crate) grammar_timeout_secs: Option<String>,
    /// Write constrained JSON compactly [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Limits"
    )]
    pub(crate) disable_any_whitespace: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "disable_any_whitespace", help_heading = "Limits")]
    #[serde(skip)]
    pub(crate) no_disable_any_whitespace: bool,
    /// Seconds at one message after which an actor is replaced at the latest [default: 5]
    #[arg(long, value_name = "SECONDS", help_heading = "Recovery")]
    pub(crate) hang_timeout_secs: Option<String>,
    /// How many times as often as by default actors may die before the engine gives up
    #[arg(long, value_name = "X", help_heading = "Recovery")]
    pub(crate) restart_tolerance: Option<String>,

    /// Requests at most that run at a time [default: 256]
    #[arg(long, value_name = "N", help_heading = "Scheduling")]
    pub(crate) max_num_seqs: Option<String>,
    /// Tokens at most that one step computes [default: 2048]
    #[arg(long, value_name = "TOKENS", help_heading = "Scheduling")]
    pub(crate) max_num_batched_tokens: Option<String>,
    /// Tokens at most of one prompt in a step that others could share; 0: no limit [default: 0]
    #[arg(long, value_name = "TOKENS", help_heading = "Scheduling")]
    pub(crate) long_prefill_token_threshold: Option<String>,
    /// Plan a step while the one before is computed [default: on GPUs]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Scheduling"
    )]
    pub(crate) async_scheduling: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "async_scheduling", help_heading = "Scheduling")]
    #[serde(skip)]
    pub(crate) no_async_scheduling: bool,
    /// Who is served first: fcfs or priority [default: fcfs]
    #[arg(long, value_name = "POLICY", help_heading = "Scheduling")]
    pub(crate) scheduling_policy: Option<String>,
    /// Under priority, seconds after which a waiting request goes first [default: 60]
    #[arg(long, value_name = "SECONDS", help_heading = "Scheduling")]
    pub(crate) priority_age_bound_s: Option<String>,
    /// Share of the blocks that admission leaves free [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Scheduling")]
    pub(crate) watermark: Option<String>,
    /// Requests at most that wait to run; further ones get 503 [default: max-num-requests]
    #[arg(long, value_name = "N", help_heading = "Scheduling")]
    pub(crate) max_num_queued_reqs: Option<String>,
    /// Prompt tokens at most of waiting requests; further ones get 503 [default: no limit]
    #[arg(long, value_name = "TOKENS", help_heading = "Scheduling")]
    pub(crate) max_num_queued_tokens: Option<String>,
    /// Open requests at most, whatever their state [default: 16384]
    #[arg(long, value_name = "N", help_heading = "Scheduling")]
    pub(crate) max_num_requests: Option<String>,
    /// Memory for requests and their outputs, such as 2GiB [default: a quarter of what is free once
    /// the model is loaded]
    #[arg(long, value_name = "BYTES", help_heading = "Scheduling")]
    pub(crate) max_request_memory_bytes: Option<String>,
    /// Open requests at most of one API key; further ones get 429 [default: no quota]
    #[arg(long, value_name = "N", help_heading = "Scheduling")]
    pub(crate) quota_max_open_requests: Option<String>,
    /// Tokens at most of one API key within a minute; further ones get 429 [default: no quota]
    #[arg(long, value_name = "TOKENS", help_heading = "Scheduling")]
    pub(crate) quota_tokens_per_minute: Option<String>,
    /// Share the KV blocks of common prefixes [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Scheduling"
    )]
    pub(crate) enable_prefix_caching: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "enable_prefix_caching", help_heading = "Scheduling")]
    #[serde(skip)]
    pub(crate) no_enable_prefix_caching: bool,
    /// Compute a prompt over several steps where it helps [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Scheduling"
    )]
    pub(crate) enable_chunked_prefill: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "enable_chunked_prefill", help_heading = "Scheduling")]
    #[serde(skip)]
    pub(crate) no_enable_chunked_prefill: bool,
    /// Admit a request only when its whole prompt fits the free blocks [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Scheduling"
    )]
    pub(crate) scheduler_reserve_full_isl: Option<String>,
    /// The opposite
    #[arg(long, conflicts_with = "scheduler_reserve_full_isl", help_heading = "Scheduling")]
    #[serde(skip)]
    pub(crate) no_scheduler_reserve_full_isl: bool,
}

impl EngineFlags {
    /// The settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = super::entries("engine", self);
        let off = [
            (self.no_pin_threads, "pin_threads"),
            (self.no_deterministic, "deterministic"),
            (self.no_autotune, "autotune"),
            (self.no_enforce_eager, "enforce_eager"),
            (self.no_async_scheduling, "async_scheduling"),
            (self.no_disable_any_whitespace, "disable_any_whitespace"),
            (self.no_enable_prefix_caching, "enable_prefix_caching"),
            (self.no_enable_chunked_prefill, "enable_chunked_prefill"),
            (self.no_scheduler_reserve_full_isl, "scheduler_reserve_full_isl"),
        ];
        for (_, name) in off.into_iter().filter(|(given, _)| *given) {
            let origin = Origin::Flag(format!("--no-{}", name.replace('_', "-")));
            entries.push(Entry { key: Key::new("engine", name), value: "false".into(), origin });
        }
        entries
    }
}
