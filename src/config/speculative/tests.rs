//! The settings of speculative decoding, as JSON texts.

use super::*;

fn read(json: &str) -> Result<SpeculativeConfig, String> {
    serde_json::from_value(json.into()).map_err(|error: serde_json::Error| error.to_string())
}

#[test]
fn methods_are_described_as_vllm_does() {
    let ngram = r#"{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4,
        "prompt_lookup_min": 2}"#;
    let lookup = NgramLookup { min: 2, max: 4 };
    let method = SpeculativeMethod::Ngram(lookup);
    assert_eq!(read(ngram), Ok(SpeculativeConfig::new(method, 3)));
    let suffix = read(r#"{"method": "suffix"}"#).unwrap();
    assert_eq!(suffix.num_speculative_tokens, 24, "the depth of the tree");
    let model = read(r#"{"model": "draft", "num_speculative_tokens": 5}"#).unwrap();
    assert_eq!(model.method, SpeculativeMethod::DraftModel { model: "draft".into() });
    for name in OF_FAMILIES.into_iter().chain(["mtp"]) {
        let mtp = read(&format!(r#"{{"method": "{name}"}}"#)).unwrap();
        let method = SpeculativeMethod::Head { method: HeadMethod::Mtp, model: None };
        assert_eq!(mtp, SpeculativeConfig::new(method, 1));
    }
}

/// The rules of vLLM's `SpeculativeConfig.__post_init__`.
#[test]
fn a_model_without_a_method_is_what_its_name_says() {
    let method = |model: &str| {
        let json = format!(r#"{{"model": "{model}", "num_speculative_tokens": 2}}"#);
        read(&json).unwrap().method
    };
    assert_eq!(method("ngram"), SpeculativeMethod::Ngram(NgramLookup { min: 5, max: 5 }));
    assert_eq!(method("[ngram]"), method("ngram"));
    for (name, form) in [
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", HeadMethod::Eagle),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", HeadMethod::Eagle3),
        ("AngelSlim/Qwen3-8B_eagle3", HeadMethod::Eagle3),
    ] {
        let expected = SpeculativeMethod::Head { method: form, model: Some(name.into()) };
        assert_eq!(method(name), expected);
    }
    let draft = SpeculativeMethod::DraftModel { model: "Qwen/Qwen3-0.6B".into() };
    assert_eq!(method("Qwen/Qwen3-0.6B"), draft);
    let on_gpu = read(r#"{"method": "ngram_gpu", "num_speculative_tokens": 2}"#).unwrap();
    assert_eq!(on_gpu.method, method("ngram"));
    let own = r#"{"method": "ngram", "model": "[ngram]", "num_speculative_tokens": 2}"#;
    assert_eq!(read(own).unwrap().method, method("ngram"));
}

#[test]
fn fields_of_vllm_are_accepted_where_their_value_has_no_effect() {
    let plain = r#"{"method": "eagle", "model": "m", "num_speculative_tokens": 2"#;
    let expected = read(&format!("{plain}}}")).unwrap();
    for more in [
        r#""draft_tensor_parallel_size": 1, "enforce_eager": true"#,
        r#""quantization": null, "revision": null, "max_model_len": null"#,
        r#""disable_padded_drafter_batch": true, "draft_sample_method": "probabilistic""#,
        r#""rejection_sample_method": "block", "parallel_drafting": false"#,
        r#""kv_cache_dtype": "auto", "disable_by_batch_size": 32"#,
        r#""attention_backend": "FLASH_ATTN", "moe_backend": "triton", "quantization": "awq""#,
        r#""acceptance_method": "rejection_sampler", "rejection_sample_method": "strict""#,
        r#""fly_window_size": 4, "disable_lookahead_block_hashes": true, "xpress_topc": null"#,
    ] {
        assert_eq!(read(&format!("{plain}, {more}}}")), Ok(expected.clone()), "{more}");
    }
    for (more, part) in [
        (r#""draft_tensor_parallel_size": 2"#, "expected 1 or null"),
        (r#""quantization": "fp8""#, "quantization is \"fp8\""),
        (r#""parallel_drafting": true"#, "parallel_drafting is true"),
        (r#""rejection_sample_method": "synthetic""#, "\"standard\" or \"block\""),
        (r#""rejection_sample_method": "fly""#, "\"standard\" or \"block\""),
        (r#""draft_lm_head_quantization": "fp8""#, "draft_lm_head_quantization is \"fp8\""),
        (r#""revision": "main""#, "org/name@revision"),
        (r#""tensor_parallel_size": 1"#, "expected draft_tensor_parallel_size"),
    ] {
        let error = read(&format!("{plain}, {more}}}")).unwrap_err();
        assert!(error.contains(part), "{more}: {error}");
    }
}

/// vLLM's `num_speculative_tokens` and `max_model_len`: the first one is by default in the config
/// of a drafter with weights, which is read when the engine starts.
#[test]
fn a_drafter_with_weights_may_have_a_length_and_its_own_number() {
    let read = |json: &str| read(json).unwrap();
    let plain = read(r#"{"method": "eagle3", "model": "m"}"#);
    assert_eq!((plain.num_speculative_tokens, plain.max_model_len), (0, None));
    let short = read(r#"{"model": "m", "num_speculative_tokens": 2, "max_model_len": 100}"#);
    assert_eq!((short.num_speculative_tokens, short.max_model_len), (2, Some(100)));
    let mut config = EngineConfig::new("m");
    config.speculative_config = Some(short);
    assert!(config.validate_for(100).is_ok());
    assert_eq!(config.validate_for(99).unwrap_err().name, "speculative_config");
}

#[test]
fn lengths_of_ngrams_have_vllms_defaults() {
    let lookup = |more: &str| {
        let json = format!(r#"{{"method": "ngram", "num_speculative_tokens": 3{more}}}"#);
        match read(&json).unwrap().method {
            SpeculativeMethod::Ngram(lookup) => (lookup.min, lookup.max),
            _ => unreachable!(),
        }
    };
    assert_eq!(lookup(""), (5, 5));
    assert_eq!(lookup(r#", "prompt_lookup_max": 3"#), (3, 3));
    assert_eq!(lookup(r#", "prompt_lookup_min": 2"#), (2, 2));
}

#[test]
fn what_is_written_is_read_again() {
    for json in [
        r#"{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}"#,
        r#"{"method": "suffix", "suffix_decoding_min_token_prob": 0.25}"#,
        r#"{"method": "draft_model", "model": "m", "num_speculative_tokens": 2}"#,
        r#"{"method": "eagle3", "model": "m", "num_speculative_tokens": 2}"#,
        r#"{"method": "deepseek_mtp"}"#,
        r#"{"method": "draft_model", "model": "m", "max_model_len": 100}"#,
    ] {
        let config = read(json).unwrap();
        let written = serde_json::to_value(&config).unwrap();
        assert_eq!(serde_json::from_value::<SpeculativeConfig>(written).unwrap(), config);
    }
}

#[test]
fn bad_values_are_named() {
    let cases = [
        (r#"{"method": "medusa", "model": "m", "num_speculative_tokens": 3}"#, "medusa"),
        (r#"{"method": "eagle", "num_speculative_tokens": 3}"#, "model is missing"),
        (r#"{"method": "ngram", "model": "m", "num_speculative_tokens": 3}"#, "with weights"),
        (r#"{"num_speculative_tokens": 3}"#, "method is missing"),
        (r#"{"method": "ngram"}"#, "num_speculative_tokens is missing"),
        (r#"{"method": "ngram", "num_speculative_tokens": 0}"#, "1 to 128"),
        (r#"{"method": "ngram", "num_speculative_tokens": 129}"#, "129"),
        (r#"{"method": "draft_model", "num_speculative_tokens": 3}"#, "model is missing"),
        (r#"{"method": "suffix", "prompt_lookup_max": 3}"#, "belongs to the method ngram"),
        (
            r#"{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 4,
             "prompt_lookup_max": 3}"#,
            "at most prompt_lookup_max, 3",
        ),
        (r#"{"method": "suffix", "suffix_decoding_min_token_prob": 1.5}"#, "in [0, 1]"),
        (r#"{"metod": "ngram"}"#, "metod"),
        (r#"{"method": "eagle", "model": "m", "num_speculative_tokens": 0}"#, "1 to 128"),
        (r#"{"method": "suffix", "max_model_len": 9}"#, "max_model_len belongs to methods with"),
        (r#"{"method": "eagle", "model": "m", "max_model_len": 0}"#, "at least 1"),
        ("ngram", "expected"),
    ];
    for (json, part) in cases {
        let error = read(json).unwrap_err();
        assert!(error.contains(part), "{json}: {error}");
    }
}
