//! Multimodal configs as they are published, and errors about their objects.

mod molmo2;

use serde_json::{Value, json};

use super::super::file::fields;
use super::super::{FeedForward, Mixer, ModelConfig, RopeScaling};
use super::*;
use crate::weights::StoredDtype;

fn read(config: Value) -> Result<ModelConfig, String> {
    ModelConfig::of_source(&fields(config).into(), None).map_err(|error| error.to_string())
}

/// The config of Gemma 3 4B: its text has few fields, and the class's defaults for all others.
fn gemma_3_4b() -> Value {
    json!({
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 255_999, "eoi_token_index": 256_000, "eos_token_id": [1, 106],
        "image_token_index": 262_144, "mm_tokens_per_image": 256, "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "sliding_window": 1024,
            "rope_scaling": { "factor": 8.0, "rope_type": "linear" },
        },
        "torch_dtype": "bfloat16",
        "vision_config": { "hidden_size": 1152, "model_type": "siglip_vision_model" },
    })
}

fn with(mut config: Value, path: &str, value: Value) -> Value {
    *config.pointer_mut(path).unwrap() = value;
    config
}

#[test]
fn gemma_3_has_the_defaults_of_its_class() {
    let config = read(gemma_3_4b()).unwrap();
    assert_eq!(config.architecture(), "Gemma3ForConditionalGeneration");
    assert_eq!((config.vocab_size, config.hidden_size, config.layers.len()), (262_208, 2560, 34));
    assert_eq!(config.eos_token_ids, [1, 106]);
    assert_eq!((config.dtype, config.max_model_len), (Some(StoredDtype::Bf16), 131_072));
    let attention = |layer: usize| match &config.layers[layer].mixer {
        Mixer::Attention(attention) => attention.clone(),
        mixer => panic!("{mixer:?}"),
    };
    let (windowed, full) = (attention(0), attention(5));
    assert_eq!((windowed.num_heads, windowed.num_kv_heads, windowed.head_dim), (8, 4, 256));
    assert_eq!((windowed.sliding_window, full.sliding_window), (Some(1024), None));
    let [windowed, full] = [windowed, full].map(|attention| attention.rope.unwrap());
    assert_eq!((windowed.theta, windowed.scaling), (10_000.0, RopeScaling::Default));
    assert_eq!((full.theta, full.scaling), (1_000_000.0, RopeScaling::Linear { factor: 8.0 }));
}

#[test]
fn llava_may_leave_the_sizes_of_llama_out() {
    let config = |text: Value| {
        read(json!({ "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "text_config": text, "tie_word_embeddings": false }))
    };
    let llama = config(json!({ "model_type": "llama", "vocab_size": 32_064, "torch_dtype":
        "float16", "max_position_embeddings": 4_096, "rms_norm_eps": 1e-5 }))
    .unwrap();
    assert_eq!((llama.vocab_size, llama.hidden_size, llama.layers.len()), (32_064, 4_096, 32));
    assert_eq!((llama.dtype, llama.tie_word_embeddings), (Some(StoredDtype::F16), false));
    let qwen = config(json!({ "model_type": "qwen2" })).unwrap();
    assert_eq!((qwen.family.model_type, qwen.vocab_size), ("qwen2", 151_936));
    let error = config(json!({ "model_type": "phi" })).unwrap_err();
    let expected = "`text_config.model_type` is \"phi\"; expected one of \"llama\", \"mistral\", \
                    \"qwen2\"";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn qwen2_vl_may_have_the_fields_of_text_beside_others() {
    let flat = json!({
        "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
        "bos_token_id": 151_643, "eos_token_id": 151_645, "hidden_size": 1536,
        "intermediate_size": 8960, "num_attention_heads": 12, "num_hidden_layers": 28,
        "num_key_value_heads": 2, "rope_theta": 1_000_000.0, "use_sliding_window": false,
        "rope_scaling": { "type": "mrope", "mrope_section": [16, 24, 24] },
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 151_936,
        "vision_config": { "depth": 32 }, "vision_token_id": 151_654,
    });
    let config = read(flat.clone()).unwrap();
    assert_eq!((config.hidden_size, config.tie_word_embeddings), (1536, true));
    assert_eq!((config.eos_token_ids, config.dtype), (vec![151_645], Some(StoredDtype::Bf16)));
    let Mixer::Attention(attention) = &config.layers[0].mixer else { panic!() };
    let rope = attention.rope.as_ref().unwrap();
    assert_eq!((rope.theta, &rope.scaling), (1_000_000.0, &RopeScaling::Default));
    let error = read(with(flat.clone(), "/hidden_size", json!("wide"))).unwrap_err();
    assert!(error.contains("`hidden_size` is \"wide\""), "{error}");
    let error = read(with(flat, "/rope_scaling/type", json!("pope"))).unwrap_err();
    assert!(error.contains("`rope_scaling.type` is \"pope\""), "{error}");
}

/// A text model alone has one axis, so such a rotary embedding is another class's.
#[test]
fn a_text_model_has_no_axes() {
    let error = read(json!({ "architectures": ["Qwen2ForCausalLM"], "vocab_size": 8,
        "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1,
        "num_key_value_heads": 1, "num_hidden_layers": 1, "rope_scaling": { "type": "mrope" } }))
    .unwrap_err();
    assert!(error.contains("is \"mrope\""), "{error}");
}

#[test]
fn fields_beside_the_text_count_first() {
    let mut config = gemma_3_4b();
    for (field, value) in [
        ("eos_token_id", json!(7)),
        ("bos_token_id", json!(3)),
        ("torch_dtype", json!("float16")),
        ("quantization_config", json!({ "quant_method": "awq", "bits": 4, "group_size": 64 })),
    ] {
        config["text_config"][field] = value;
    }
    let read = |config: &Value| {
        let config = read(config.clone()).unwrap();
        (config.eos_token_ids, config.bos_token_id, config.dtype, config.quantization)
    };
    let (eos, bos, dtype, quantization) = read(&config);
    assert_eq!((eos, bos, dtype), (vec![1, 106], Some(3), Some(StoredDtype::Bf16)));
    assert_eq!(quantization.unwrap().to_string(), "AWQ, 4 bits, groups of 64");
    let awq = json!({ "quant_method": "awq", "bits": 4, "group_size": 32 });
    config["quantization_config"] = awq;
    for field in ["eos_token_id", "torch_dtype"] {
        config[field] = Value::Null;
    }
    let (eos, _, dtype, quantization) = read(&config);
    assert_eq!((eos, dtype), (vec![7], Some(StoredDtype::F16)));
    assert_eq!(quantization.unwrap().to_string(), "AWQ, 4 bits, groups of 32");
    config["quantization_config"]["bits"] = json!(3);
    let error = super::super::ModelConfig::of_source(&fields(config).into(), None).unwrap_err();
    assert!(error.to_string().contains("`quantization_config.bits` is 3"), "{error}");
}

#[test]
fn the_checkpoint_decides_about_the_output_layer_where_the_config_does_not() {
    let tie = |outer: Value, text: Value| {
        let mut config = gemma_3_4b();
        config["tie_word_embeddings"] = outer;
        config["text_config"]["tie_word_embeddings"] = text;
        read(config).unwrap().wrapped.unwrap().tie
    };
    let (yes, no, absent) = (json!(true), json!(false), Value::Null);
    for (outer, text, expected) in [
        (&absent, &absent, Tie::AsStored),
        (&yes, &no, Tie::AsStored),
        (&yes, &absent, Tie::Yes),
        (&yes, &yes, Tie::Yes),
        (&absent, &yes, Tie::Yes),
        (&no, &yes, Tie::AsStored),
        (&no, &absent, Tie::No),
        (&no, &no, Tie::No),
        (&absent, &no, Tie::No),
    ] {
        assert_eq!(tie(outer.clone(), text.clone()), expected, "{outer} {text}");
    }
}

/// InternVL 2.5 4B, as it is published. Its text model reads its own field about the output layer:
/// `Qwen2ForCausalLM(config.llm_config)` in the authors' code.
#[test]
fn internvl_of_its_authors_has_another_name_for_its_text() {
    let published = json!({
        "architectures": ["InternVLChatModel"], "auto_map": { "AutoModel": "modeling" },
        "model_type": "internvl_chat", "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "llm_config": {
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 2048,
            "intermediate_size": 11_008, "num_attention_heads": 16, "num_hidden_layers": 36,
            "num_key_value_heads": 2, "tie_word_embeddings": true, "vocab_size": 151_674,
        },
        "vision_config": { "model_type": "intern_vit_6b" },
    });
    let config = read(published.clone()).unwrap();
    assert_eq!((config.hidden_size, config.vocab_size), (2048, 151_674));
    assert_eq!(config.wrapped.unwrap().tie, Tie::Yes);
    let error = read(with(published.clone(), "/llm_config/hidden_size", json!(-1))).unwrap_err();
    assert!(error.contains("`llm_config.hidden_size` is -1"), "{error}");
    let error = read(with(published.clone(), "/llm_config/model_type", json!("phi"))).unwrap_err();
    assert!(error.contains("\"qwen2\", \"internlm2\", \"llama\", \"phi3\""), "{error}");
    let error = read(with(published, "/llm_config", json!(null))).unwrap_err();
    assert!(error.contains("`llm_config` is missing"), "{error}");
}

/// Phi-4-multimodal, as it is published, with other factors.
#[test]
fn phi_4_multimodal_of_its_authors_has_no_object_for_its_text() {
    let published = json!({
        "architectures": ["Phi4MMForCausalLM"], "auto_map": { "AutoConfig": "configuration" },
        "model_type": "phi4mm", "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "partial_rotary_factor": 0.75,
        "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "sliding_window": 262_144,
        "vocab_size": 200_064, "attention_bias": false, "mlp_bias": false, "lm_head_bias": false,
        "full_attn_mod": 1, "interpolate_factor": 1,
        "embd_layer": { "embedding_cls": "image_audio" },
        "rope_scaling": {
            "type": "longrope", "short_factor": vec![1.0; 48], "long_factor": vec![1.5; 48],
        },
    });
    let config = read(published).unwrap();
    assert_eq!((config.hidden_size, config.vocab_size, config.layers.len()), (3072, 200_064, 32));
    assert_eq!(config.eos_token_ids, [199_999, 200_020]);
    assert_eq!(config.wrapped.unwrap().tie, Tie::Yes);
}

/// In the form of LLaVA-OneVision 7B.
#[test]
fn llava_onevision_has_its_text_beside_its_tiles() {
    let published = json!({
        "architectures": ["LlavaOnevisionForConditionalGeneration"],
        "model_type": "llava_onevision", "image_token_index": 151_646,
        "video_token_index": 151_647, "vision_aspect_ratio": "anyres_max_9",
        "tie_word_embeddings": false, "torch_dtype": "float16", "use_image_newline_parameter": true,
        "text_config": {
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3_584,
            "intermediate_size": 18_944, "max_window_layers": 28, "model_type": "qwen2",
            "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "rope_theta": 1_000_000.0, "torch_dtype": "bfloat16", "vocab_size": 152_000,
        },
        "vision_config": { "model_type": "siglip_vision_model", "vision_use_head": false },
    });
    let config = read(published.clone()).unwrap();
    assert_eq!((config.hidden_size, config.vocab_size, config.layers.len()), (3_584, 152_000, 28));
    assert_eq!((config.dtype, config.wrapped.unwrap().tie), (Some(StoredDtype::F16), Tie::No));
    let error = read(with(published, "/text_config/model_type", json!("phi"))).unwrap_err();
    assert!(error.contains("\"qwen2\", \"qwen3\", \"llama\", \"mistral\""), "{error}");
}

/// In the form of Intern-S1-mini.
#[test]
fn intern_s1_has_a_text_model_of_qwen3() {
    let config = read(json!({
        "architectures": ["InternS1ForConditionalGeneration"], "model_type": "interns1",
        "downsample_ratio": 0.5, "image_token_id": 152_957, "torch_dtype": "bfloat16",
        "tie_word_embeddings": false,
        "text_config": {
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128,
            "hidden_size": 4_096, "intermediate_size": 12_288, "num_attention_heads": 32,
            "num_hidden_layers": 36, "num_key_value_heads": 8, "vocab_size": 153_216,
        },
        "vision_config": { "model_type": "interns1_vision", "norm_type": "layer_norm" },
    }))
    .unwrap();
    assert_eq!((config.hidden_size, config.vocab_size, config.layers.len()), (4_096, 153_216, 36));
}

/// The first configs of EXAONE 4.5 have a name of their own for its text model.
#[test]
fn exaone_4_5_has_two_names_for_its_text() {
    for name in ["exaone4", "exaone4_5_text"] {
        let config = read(json!({
            "architectures": ["Exaone4_5_ForConditionalGeneration"], "model_type": "exaone4_5",
            "text_config": { "model_type": name, "hidden_size": 5_120, "num_hidden_layers": 64,
                "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128 },
        }))
        .unwrap();
        assert_eq!((config.hidden_size, config.layers.len()), (5_120, 64));
    }
}

/// As `Gemma4UnifiedTextConfig`, whose defaults are not those of `Gemma4TextConfig`.
#[test]
fn gemma_4_without_a_tower_has_defaults_of_its_own() {
    let of = |text: Value| {
        let config = json!({
            "architectures": ["Gemma4UnifiedForConditionalGeneration"],
            "model_type": "gemma4_unified", "text_config": text, "vision_config": {},
        });
        read(config).unwrap()
    };
    let own = of(json!({ "num_hidden_layers": 6, "hidden_size_per_layer_input": 256 }));
    assert_eq!(own.max_position_embeddings, 262_144);
    assert_eq!(own.gemma4.unwrap().per_layer, None);
    let attentions = own.layers.iter().filter_map(|layer| layer.mixer.attention());
    let found: Vec<_> = attentions.map(|it| (it.sliding_window, it.always_causal)).collect();
    assert_eq!(found[0], (Some(1_024), false));
    assert_eq!(found[5], (None, true));
    let mut causal = of(json!({ "num_hidden_layers": 6, "use_bidirectional_attention": null }));
    assert!(causal.attentions().all(|it| !it.always_causal));
}

/// In the forms of Kimi-VL and of Kimi K2.5, whose text model has a name of its own.
#[test]
fn kimi_has_the_text_of_deepseek() {
    let config = |class: &str, model_type: &str, text: &str| {
        read(json!({
            "architectures": [class], "model_type": model_type,
            "media_placeholder_token_id": 163_605, "vision_config": {},
            "text_config": {
                "model_type": text, "vocab_size": 163_840, "hidden_size": 2_048,
                "intermediate_size": 11_264, "moe_intermediate_size": 1_408,
                "num_hidden_layers": 27, "num_attention_heads": 16, "n_shared_experts": 2,
                "n_routed_experts": 64, "routed_scaling_factor": 2.446, "kv_lora_rank": 512,
                "q_lora_rank": null, "qk_rope_head_dim": 64, "v_head_dim": 128,
                "qk_nope_head_dim": 128, "topk_method": "noaux_tc", "n_group": 1,
                "topk_group": 1, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
                "norm_topk_prob": true, "scoring_func": "sigmoid", "rope_theta": 800_000.0,
                "max_position_embeddings": 131_072, "tie_word_embeddings": false,
            },
        }))
    };
    let vl = config("KimiVLForConditionalGeneration", "kimi_vl", "deepseek_v3").unwrap();
    assert_eq!((vl.layers.len(), vl.max_position_embeddings), (27, 131_072));
    let k25 = config("KimiK25ForConditionalGeneration", "kimi_k25", "kimi_k2").unwrap();
    assert_eq!(k25.layers, vl.layers);
    let why = config("KimiVLForConditionalGeneration", "kimi_vl", "qwen2").unwrap_err();
    assert!(why.contains("text_config.model_type"), "{why}");
}

/// The shared expert is as wide as several others.
#[test]
fn aria_has_experts_in_each_layer() {
    let config = |text: Value| {
        read(json!({
            "architectures": ["AriaForConditionalGeneration"], "model_type": "aria",
            "vision_config": {}, "text_config": text,
        }))
    };
    let own = config(json!({ "num_hidden_layers": 2, "moe_num_experts": 64, "moe_topk": 6 }));
    for layer in own.unwrap().layers {
        let FeedForward::Moe(moe) = layer.feed_forward else { panic!("a layer without experts") };
        assert_eq!((moe.num_experts, moe.top_k, moe.intermediate_size), (64, 6, 4_096));
        assert_eq!(moe.shared.unwrap().intermediate_size, 2 * 4_096);
    }
    let why = config(json!({ "hidden_act": "gelu" })).unwrap_err();
    assert!(why.contains("text_config.hidden_act"), "{why}");
}

/// In the form of dots.ocr.
#[test]
fn dots_ocr_has_its_text_beside_its_tower() {
    let config = read(json!({
        "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr",
        "attention_bias": true, "hidden_size": 1_536, "intermediate_size": 8_960,
        "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2,
        "rope_theta": 1_000_000, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_sliding_window": false, "vocab_size": 151_936, "image_token_id": 151_665,
        "vision_config": { "embed_dim": 1_536, "model_type": "dots_vit", "post_norm": true },
    }))
    .unwrap();
    assert_eq!((config.hidden_size, config.layers.len()), (1_536, 28));
    assert_eq!(config.wrapped.unwrap().tie, Tie::No);
}

/// In the form of DeepSeek-OCR.
#[test]
fn deepseek_ocr_has_a_language_config() {
    let config = |latent: Value, rotated: usize| {
        read(json!({
            "architectures": ["DeepseekOCRForCausalLM"], "model_type": "deepseek_vl_v2",
            "language_config": {
                "architectures": ["DeepseekV2ForCausalLM"], "bos_token_id": 0, "eos_token_id": 1,
                "first_k_dense_replace": 1, "hidden_size": 1_280, "intermediate_size": 6_848,
                "kv_lora_rank": null, "max_position_embeddings": 8_192,
                "moe_intermediate_size": 896, "n_group": 1, "n_routed_experts": 64,
                "n_shared_experts": 2, "num_attention_heads": 10, "num_experts_per_tok": 6,
                "num_hidden_layers": 12, "num_key_value_heads": 10, "q_lora_rank": null,
                "qk_nope_head_dim": 0, "qk_rope_head_dim": rotated, "topk_group": 1,
                "topk_method": "greedy", "torch_dtype": "bfloat16", "use_mla": latent,
                "v_head_dim": 0, "vocab_size": 129_280,
            },
            "tile_tag": "2D", "torch_dtype": "bfloat16",
        }))
    };
    for latent in [json!(false), json!(null)] {
        let found = config(latent, 0).unwrap();
        let sizes = (found.hidden_size, found.layers.len(), found.max_model_len);
        assert_eq!(sizes, (1_280, 12, 8_192));
        assert_eq!(found.eos_token_ids, [1]);
    }
    let error = config(json!(true), 0).unwrap_err();
    assert!(error.contains("`language_config.use_mla` is true"), "{error}");
    let error = config(json!(null), 64).unwrap_err();
    assert!(error.contains("`language_config.qk_rope_head_dim` is 64"), "{error}");
}

#[test]
fn lighton_ocr_has_two_forms() {
    const OWN: &str = "LightOnOcrForConditionalGeneration";
    const FIRST: &str = "LightOnOCRForConditionalGeneration";
    for (architecture, model_type, is_read) in [
        (OWN, "lighton_ocr", true),
        (OWN, "mistral3", false),
        (FIRST, "mistral3", true),
        (FIRST, "lighton_ocr", true),
        (FIRST, "llava", false),
    ] {
        let config = json!({
            "architectures": [architecture], "model_type": model_type,
            "text_config": { "model_type": "qwen3" },
        });
        assert_eq!(read(config).is_ok(), is_read, "{architecture}, {model_type}");
    }
}

#[test]
fn an_error_names_the_object() {
    for (path, value, expected) in [
        ("/text_config", json!(null), "`text_config` is missing"),
        ("/text_config", json!([]), "`text_config` is []; expected an object"),
        ("/text_config/hidden_size", json!(-1), "`text_config.hidden_size` is -1"),
        ("/text_config/model_type", json!("gemma2"), "expected one of \"gemma3_text\""),
        ("/model_type", json!("gemma3_text"), "`model_type` is \"gemma3_text\"; expected"),
        ("/torch_dtype", json!("int8"), "`torch_dtype` is \"int8\""),
        ("/eos_token_id", json!("end"), "`eos_token_id` is \"end\""),
    ] {
        let error = read(with(gemma_3_4b(), path, value)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let mut config = gemma_3_4b();
    config["text_config"]["final_logit_softcapping"] = json!(30.0);
    let error = read(config).unwrap_err();
    assert!(error.contains("`text_config.final_logit_softcapping` is 30.0"), "{error}");
    let mut config = gemma_3_4b();
    config["is_encoder_decoder"] = json!(true);
    let error = read(config).unwrap_err();
    assert!(error.contains("`is_encoder_decoder` is true"), "{error}");
}

/// Published SigLIP models leave the sizes of their text tower out.
#[test]
fn towers_of_texts_have_the_defaults_of_their_classes() {
    let of = |name: &str, model_type: &str, text: Value| {
        let config = json!({ "architectures": [name], "model_type": model_type,
            "text_config": text, "vision_config": {} });
        let config = read(config).unwrap();
        let Mixer::Attention(attention) = &config.layers[0].mixer else { panic!() };
        let sizes = [config.vocab_size, config.hidden_size, attention.num_heads];
        (sizes, config.layers.len(), config.max_model_len, attention.is_causal)
    };
    let siglip = of("SiglipModel", "siglip", json!({ "model_type": "siglip_text_model" }));
    assert_eq!(siglip, ([32_000, 768, 12], 12, 64, false));
    let siglip = of("SiglipModel", "siglip", json!({ "vocab_size": 256_000 }));
    assert_eq!(siglip, ([256_000, 768, 12], 12, 64, false));
    let clip = of("CLIPModel", "clip", json!({ "hidden_size": 768, "num_attention_heads": 12 }));
    assert_eq!(clip, ([49_408, 768, 12], 12, 77, true));
}

/// As in the code of their authors, whose configs do not say so.
#[test]
fn retrievers_of_nvidia_attend_to_both_sides() {
    let colbert = |text: Value| {
        read(json!({
            "architectures": ["Qwen3VLNemotronEmbedModel"], "pooling": "colbert",
            "model_type": "qwen3_vl_nemotron_embed", "text_config": text,
        }))
    };
    let mut config = colbert(json!({ "is_causal": false })).unwrap();
    assert!(!config.has_final_norm);
    assert!(config.attentions().all(|attention| !attention.is_causal));
    let why = colbert(json!({ "is_causal": true })).unwrap_err();
    assert!(why.contains("`text_config.is_causal` is true"), "{why}");
    for (name, model_type) in [
        ("LlamaNemotronVLModel", "llama_nemotron_vl"),
        ("LlamaNemotronVLForSequenceClassification", "llama_nemotron_vl_rerank"),
    ] {
        let of = |text: Value| {
            read(json!({
                "architectures": [name], "model_type": model_type, "llm_config": text,
            }))
        };
        let mut config =
            of(json!({ "model_type": "llama_bidirec", "hidden_size": 2_048 })).unwrap();
        assert!(config.attentions().all(|attention| !attention.is_causal));
        assert_eq!((config.hidden_size, config.has_final_norm), (2_048, true), "{name}");
        let why = of(json!({ "model_type": "llama" })).unwrap_err();
        assert!(why.contains("`llm_config.model_type` is \"llama\""), "{why}");
    }
}
