//! vLLM's fields of `--speculative-config` that no method here reads. Each is accepted with the
//! values under which this engine does the same, so that commands for vLLM work.

use serde_json::{Map, Value, json};

/// Fields that change the speed of vLLM's drafters and no output.
const WITHOUT_EFFECT: [&str; 14] = [
    "attention_backend",
    "disable_by_batch_size",
    "disable_eagle_block_drop",
    "disable_logprobs",
    "disable_lookahead_block_hashes",
    "disable_mqa_scorer",
    "disable_padded_drafter_batch",
    "enforce_eager",
    // Of the rejection sampling "fly", which is refused.
    "fly_entropy_threshold",
    "fly_entropy_top_k",
    "fly_window_size",
    "index_share_for_mtp_iteration",
    "moe_backend",
    "use_local_argmax_reduction",
];

/// Quantizations that only a checkpoint has.
const OF_CHECKPOINTS: [&str; 7] =
    ["awq", "awq_marlin", "compressed-tensors", "gguf", "gptq", "gptq_marlin", "mxfp4"];

/// Fields with the values that are accepted beside null.
fn accepted() -> [(&'static str, Vec<Value>); 23] {
    let texts = |values: &[&str]| -> Vec<Value> { values.iter().map(|text| json!(text)).collect() };
    let one = || vec![json!(1)];
    let off = || vec![json!(false)];
    let auto = || vec![json!("auto")];
    [
        // Earlier versions' name of the rejection sampling.
        ("acceptance_method", vec![json!("rejection_sampler")]),
        ("code_revision", Vec::new()),
        ("draft_lm_head_quantization", Vec::new()),
        ("draft_load_config", Vec::new()),
        ("draft_model_config", Vec::new()),
        ("draft_parallel_config", Vec::new()),
        // The output does not depend on the draws of a drafter.
        ("draft_sample_method", vec![json!("greedy"), json!("probabilistic")]),
        ("draft_tensor_parallel_size", one()),
        ("dspark_draft_topk", Vec::new()),
        ("enable_adaptive_verification", off()),
        ("kv_cache_dtype", auto()),
        ("num_speculative_tokens_per_batch_size", Vec::new()),
        ("parallel_drafting", off()),
        // The checkpoint says it.
        ("quantization", texts(&OF_CHECKPOINTS)),
        // All keep the distribution of outputs, and here outputs keep their bytes.
        ("rejection_sample_method", texts(&["standard", "block", "strict", "probabilistic"])),
        ("revision", Vec::new()),
        ("speculative_token_tree", Vec::new()),
        ("synthetic_acceptance_length", Vec::new()),
        ("synthetic_acceptance_rates", Vec::new()),
        ("target_model_config", Vec::new()),
        ("target_parallel_config", Vec::new()),
        ("use_heterogeneous_vocab", off()),
        ("xpress_topc", Vec::new()),
    ]
}

/// Rejects fields that vLLM does not have, and values with an effect that is not computed here.
pub(super) fn check(others: &Map<String, Value>) -> Result<(), String> {
    let accepted = accepted();
    for (name, value) in others {
        if WITHOUT_EFFECT.contains(&name.as_str()) {
            continue;
        }
        let values = match accepted.iter().find(|(known, _)| known == name) {
            Some((_, values)) => values,
            None if name == "tensor_parallel_size" => {
                return Err("tensor_parallel_size is not a field of a drafter: \
                            expected draft_tensor_parallel_size, of the value 1"
                    .to_owned());
            }
            None => return Err(format!("{name} is no field of vLLM's speculative config")),
        };
        if value.is_null() || values.contains(value) {
            continue;
        }
        let expected = values.iter().map(Value::to_string).chain(["null".to_owned()]);
        let mut expected = expected.collect::<Vec<_>>().join(" or ");
        if name == "revision" {
            expected.push_str("; a name has its revision after an @, as in org/name@revision");
        }
        return Err(format!("{name} is {value}, which is not supported: expected {expected}"));
    }
    Ok(())
}
