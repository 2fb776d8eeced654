//! Turns the engine's settings into those of the actors.
//!
//! Each struct is written out in full, without `..`: the compiler rejects a field that has no value
//! here.

use std::time::Duration;

use playhouse_actors::{
    logic::{
        admission::{AdmissionLimits, Quota},
        encoder_cache::encoder_budget,
        kv_cache::KvKind,
        recovery::restart::Intensity,
        scheduler::SchedulerConfig,
    },
    ports::ModelInfo,
    system::{Supervision, SystemConfig},
};
use playhouse_kernels::DeviceKind;

use super::drafts::has_guesses;
use crate::config::{EngineConfig, available_memory_bytes};

/// Returns the actors' settings for a model that is loaded on a device of this kind.
pub(super) fn system_config(
    config: &EngineConfig,
    info: &ModelInfo,
    device: DeviceKind,
    served_model_names: &[String],
) -> SystemConfig {
    let scheduler = scheduler_config(config, info, device);
    let defaults = SystemConfig::new(scheduler.clone());
    SystemConfig {
        scheduler,
        model_name: served_model_names.first().cloned().unwrap_or_default(),
        engine: defaults.engine,
        num_engines: defaults.num_engines,
        admission: admission_limits(config),
        max_request_memory_bytes: config.request_memory_bytes(available_memory_bytes()),
        memory: defaults.memory,
        num_input_processors: config.num_input_processors,
        num_egress_shards: config.num_egress_shards,
        max_logprobs: match config.max_logprobs {
            usize::MAX => info.vocab_size,
            count => u32::try_from(count).unwrap_or(u32::MAX),
        },
        call_timeout: defaults.call_timeout,
        input_timeout: defaults.input_timeout,
        num_grammar_threads: defaults.num_grammar_threads,
        grammar_timeout: seconds(config.grammar_timeout_secs),
        min_step_deadline: min_step_deadline(config.min_step_deadline_secs, device),
        first_step_deadline: defaults.first_step_deadline,
        egress_timeout: defaults.egress_timeout,
        tick: defaults.tick,
        hang_timeout: seconds(config.hang_timeout_secs),
        reader_timeout: seconds(config.reader_timeout_secs),
        supervision: supervision(config.restart_tolerance, config.allow_chaos),
        max_message_bytes: defaults.max_message_bytes,
        device: defaults.device,
        journal: defaults.journal,
        recorder: defaults.recorder,
        profiler: defaults.profiler,
    }
}

/// Returns the scheduler's settings.
fn scheduler_config(
    config: &EngineConfig,
    info: &ModelInfo,
    device: DeviceKind,
) -> SchedulerConfig {
    let defaults = SchedulerConfig::default();
    // Without a KV cache, prompts are computed whole, and nothing of them is kept.
    let keeps_tokens = !info.kv_spec.groups.is_empty();
    SchedulerConfig {
        policy: config.scheduling_policy,
        priority_age_bound: (config.priority_age_bound_secs * 1e6) as u64,
        max_num_seqs: config.max_num_seqs,
        max_num_batched_tokens: match keeps_tokens {
            true => config.max_num_batched_tokens,
            false => config.whole_prompt_budget(info.max_model_len),
        },
        max_model_len: info.max_model_len,
        long_prefill_token_threshold: config.long_prefill_token_threshold,
        enable_chunked_prefill: config.enable_chunked_prefill && keeps_tokens,
        reserve_full_isl: config.scheduler_reserve_full_isl,
        watermark: config.watermark,
        prefill_schedule_interval: config.prefill_schedule_interval,
        kv_spec: info.kv_spec.clone(),
        num_blocks: u32::try_from(info.num_blocks).unwrap_or(u32::MAX),
        enable_prefix_caching: config.enable_prefix_caching && keeps_tokens,
        hash_seed: defaults.hash_seed,
        encoder_budget: encoder_cache_size(config, info),
        encoder_cache_size: encoder_cache_size(config, info),
        disable_chunked_mm_input: defaults.disable_chunked_mm_input,
        largest_whole_item: largest_whole_item(config, info),
        async_scheduling: config.async_scheduling.unwrap_or(device != DeviceKind::Cpu),
        max_loras: config.max_loras,
        num_lookahead_tokens: match has_guesses(&info.kv_spec, device) {
            true => {
                let num_forced = config.num_jump_forward_tokens(device == DeviceKind::Cpu);
                config.num_speculative_tokens().max(num_forced)
            }
            false => 0,
        },
    }
}

/// Returns the room of the encoder cache in embeddings, and the most that are encoded at once: as
/// vLLM's, those of a step or of the largest item. 0 if the model takes no media.
fn encoder_cache_size(config: &EngineConfig, info: &ModelInfo) -> usize {
    match info.max_item_embeds {
        0 => 0,
        largest => encoder_budget(config.max_num_batched_tokens, largest),
    }
}

/// Returns the most tokens that attend to each other: those of an image, or those of a prompt. A
/// step has room for such a prompt, and so have the windows of all layers: transformers does not
/// apply them within it (HF `create_sliding_window_causal_mask`).
fn largest_whole_item(config: &EngineConfig, info: &ModelInfo) -> usize {
    let windows = info.kv_spec.groups.iter().filter_map(|group| match group.kind {
        KvKind::Sliding { window } => Some(window),
        _ => None,
    });
    match (info.attends_within_prompts, info.attends_within_items) {
        (true, _) => windows.fold(config.max_num_batched_tokens, usize::min),
        (false, true) => info.max_item_embeds,
        (false, false) => 0,
    }
}

/// Returns the limits on accepted requests.
fn admission_limits(config: &EngineConfig) -> AdmissionLimits {
    AdmissionLimits {
        max_num_requests: config.max_num_requests,
        max_num_queued_reqs: config.max_num_queued_reqs,
        max_num_queued_tokens: config.max_num_queued_tokens,
        quota: Quota {
            max_open_requests: config.quota_max_open_requests,
            tokens_per_minute: config.quota_tokens_per_minute.map(|tokens| tokens as u64),
        },
    }
}

/// Returns the time that any step may take. It is longer on a GPU, because a new shape may need its
/// kernels compiled.
fn min_step_deadline(configured: Option<f64>, device: DeviceKind) -> Duration {
    let by_default = if device == DeviceKind::Cpu { 0.1 } else { 2.0 };
    seconds(configured.unwrap_or(by_default))
}

/// Returns how often actors may die. An engine that may be struck by default never gives up.
fn supervision(tolerance: Option<f64>, allow_chaos: bool) -> Supervision {
    match tolerance {
        Some(times) => Supervision::default().tolerating(times),
        None if allow_chaos => Supervision::uniform(Intensity::UNLIMITED),
        None => Supervision::default(),
    }
}

/// Returns a setting as a duration. A number that is not a duration means no limit.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use playhouse_actors::logic::kv_cache::KvSpec;

    use super::*;

    fn info() -> ModelInfo {
        ModelInfo {
            vocab_size: 9,
            max_model_len: 64,
            kv_spec: KvSpec::full(1, 8, 64),
            num_blocks: 5,
            eos_token_ids: Vec::new(),
            heads: Default::default(),
            max_item_embeds: 0,
            attends_within_items: false,
            attends_within_prompts: false,
            short_context: None,
        }
    }

    #[test]
    fn a_prompt_that_attends_to_itself_fits_a_step_and_a_window() {
        let config = EngineConfig { max_num_batched_tokens: 100, ..EngineConfig::new("model") };
        let whole = |info: &ModelInfo| {
            system_config(&config, info, DeviceKind::Cpu, &[]).scheduler.largest_whole_item
        };
        let mut info = ModelInfo { attends_within_items: true, max_item_embeds: 9, ..info() };
        assert_eq!(whole(&info), 9);
        info.attends_within_prompts = true;
        assert_eq!(whole(&info), 100);
        info.kv_spec.groups[0].kind = KvKind::Sliding { window: 64 };
        assert_eq!(whole(&info), 64);
    }

    #[test]
    fn settings_reach_the_actors() {
        let config = EngineConfig {
            max_num_seqs: 3,
            max_num_requests: 40,
            priority_age_bound_secs: 1.5,
            reader_timeout_secs: 7.0,
            ..EngineConfig::new("model")
        };
        let names = ["first".to_owned(), "second".to_owned()];
        let system = system_config(&config, &info(), DeviceKind::Cpu, &names);
        let scheduler = &system.scheduler;
        assert_eq!((scheduler.max_num_seqs, scheduler.max_model_len), (3, 64));
        assert_eq!((scheduler.kv_spec.block_size, scheduler.num_blocks), (8, 5));
        assert_eq!(scheduler.priority_age_bound, 1_500_000);
        assert!(!scheduler.async_scheduling, "a processor computes its steps one by one");
        assert_eq!(scheduler.num_lookahead_tokens, 16, "forced tokens are verified together");
        let off = EngineConfig { jump_forward: Some(false), ..config };
        let off = system_config(&off, &info(), DeviceKind::Cpu, &names);
        assert_eq!(off.scheduler.num_lookahead_tokens, 0);
        assert_eq!(system.admission.max_num_requests, 40);
        assert_eq!(system.reader_timeout, Duration::from_secs(7));
        assert_eq!(system.min_step_deadline, Duration::from_millis(100));
        assert_eq!((system.model_name.as_str(), system.max_logprobs), ("first", 20));
        let unlimited = EngineConfig { max_logprobs: usize::MAX, ..EngineConfig::new("model") };
        let unlimited = system_config(&unlimited, &info(), DeviceKind::Cpu, &[]);
        assert_eq!(unlimited.max_logprobs, 9, "the vocabulary's");
    }

    #[test]
    fn steps_of_a_gpu_are_planned_ahead_and_may_take_longer() {
        let config = EngineConfig::new("model");
        let system = system_config(&config, &info(), DeviceKind::Gpu, &[]);
        assert!(system.scheduler.async_scheduling);
        assert_eq!(system.scheduler.num_lookahead_tokens, 0, "not measured on GPUs");
        assert_eq!(system.min_step_deadline, Duration::from_secs(2));
    }
}
