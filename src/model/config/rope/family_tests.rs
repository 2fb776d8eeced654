//! Rope settings that differ between families. The expected values are those of transformers'
//! config classes and rotary embeddings.

use serde_json::{Value, json};

use super::{Llama3Scaling, RopeParameters, RopeScaling, YarnScaling};
use crate::model::config::families_tests::{base, read};
use crate::model::config::{AttentionConfig, ModelConfig};

/// Returns the config of a model of `architecture` with `fields`.
fn model(architecture: &str, fields: Value) -> Result<ModelConfig, String> {
    let mut config = base(architecture);
    for (field, value) in fields.as_object().unwrap() {
        config[field] = value.clone();
    }
    read(&config).map_err(|error| error.to_string())
}

fn attentions(architecture: &str, fields: Value) -> Vec<AttentionConfig> {
    let model = model(architecture, fields).unwrap();
    model.layers.iter().filter_map(|layer| layer.mixer.attention().cloned()).collect()
}

/// Returns the parameters of the first attention.
fn rope(architecture: &str, fields: Value) -> RopeParameters {
    attentions(architecture, fields).remove(0).rope.unwrap()
}

/// Returns the elements that rotate, and the divisor in exponents.
fn parts(architecture: &str, fields: Value) -> (usize, usize) {
    let rope = rope(architecture, fields);
    (rope.rotary_dim, rope.frequency_dim)
}

/// The base in the object of a class does not change with a field beside it.
#[test]
fn a_class_has_an_object_of_parameters_of_its_own() {
    let none = [json!({}), json!({ "rope_theta": 7.0 }), json!({ "rope_scaling": null })];
    let llama3 = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8_192,
    };
    let yarn = |factor: f64, original: usize, mscale: Option<f64>| {
        RopeScaling::Yarn(YarnScaling {
            factor,
            original_max_position_embeddings: original,
            attention_factor: None,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale,
            mscale_all_dim: mscale,
            truncate: mscale.is_some(),
        })
    };
    for (architecture, theta, default_theta, scaling) in [
        ("ApertusForCausalLM", 12e6, 12e6, RopeScaling::Llama3(llama3)),
        ("Ministral3ForCausalLM", 1e6, 1e4, yarn(16.0, 16_384, Some(1.0))),
        ("GptOssForCausalLM", 150_000.0, 150_000.0, yarn(32.0, 4_096, None)),
    ] {
        for fields in &none {
            let rope = rope(architecture, fields.clone());
            // The object of gpt-oss has no base.
            let is_beside = architecture == "GptOssForCausalLM" && fields["rope_theta"] == 7.0;
            let theta = if is_beside { 7.0 } else { theta };
            assert_eq!((rope.theta, &rope.scaling), (theta, &scaling), "{architecture} {fields}");
        }
        let plain = json!({ "rope_parameters": { "rope_type": "default" } });
        let plain = rope(architecture, plain);
        assert_eq!((plain.theta, plain.scaling), (default_theta, RopeScaling::Default));
        let beside = json!({ "rope_theta": 7.0, "rope_parameters": { "rope_type": "default" } });
        assert_eq!(rope(architecture, beside).theta, 7.0);
    }
    let beta = |fields| attentions("Ministral3ForCausalLM", fields)[0].temperature;
    assert_eq!(
        beta(json!({ "rope_theta": 7.0 })).map(|of| (of.scale, of.floor)),
        Some((0.1, 16384.0))
    );
    assert_eq!(beta(json!({ "rope_parameters": { "rope_type": "default" } })), None);
}

#[test]
fn a_base_has_the_default_of_the_class() {
    for (architecture, theta) in [
        ("CohereForCausalLM", 500_000.0),
        ("Cohere2ForCausalLM", 10_000.0),
        ("MixtralForCausalLM", 1_000_000.0),
        ("HeliumForCausalLM", 100_000.0),
    ] {
        assert_eq!(rope(architecture, json!({})).theta, theta, "{architecture}");
    }
}

/// HF `Gemma3TextConfig.convert_rope_params_to_dict` and `Olmo3Config`'s.
#[test]
fn layers_with_a_window_have_parameters_of_their_own() {
    let of = |architecture: &str, fields: Value| {
        let mut fields = fields;
        fields["layer_types"] = json!(["sliding_attention", "full_attention"]);
        let [sliding, full] = attentions(architecture, fields).try_into().unwrap();
        let [sliding, full] = [sliding, full].map(|attention| attention.rope.unwrap());
        assert_eq!(sliding.scaling, RopeScaling::Default);
        (sliding.theta, full.theta, full.scaling)
    };
    let linear = json!({ "rope_type": "linear", "factor": 8.0 });
    let bare = json!({ "full_attention": { "rope_type": "default" },
        "sliding_attention": { "rope_type": "default" } });
    let rows = [
        (json!({}), 1e4, 1e6, None),
        (json!({ "rope_theta": 7.0, "rope_local_base_freq": 8.0 }), 8.0, 7.0, None),
        (json!({ "rope_theta": 7.0, "rope_scaling": linear }), 1e4, 7.0, Some(8.0)),
        (json!({ "rope_parameters": bare }), 1e4, 1e6, None),
        (json!({ "rope_parameters": bare, "rope_theta": 7.0 }), 1e4, 7.0, None),
        (json!({ "rope_parameters": bare, "rope_local_base_freq": 8.0 }), 8.0, 1e6, None),
        (json!({ "rope_parameters": { "full_attention": linear } }), 1e4, 1e6, Some(8.0)),
        (json!({ "rope_parameters": { "sliding_attention": null } }), 1e4, 1e6, None),
    ];
    for architecture in ["Gemma3ForCausalLM", "Gemma3nForCausalLM"] {
        for (fields, sliding, full, factor) in rows.clone() {
            let scaling =
                factor.map_or(RopeScaling::Default, |factor| RopeScaling::Linear { factor });
            assert_eq!(of(architecture, fields.clone()), (sliding, full, scaling), "{fields}");
        }
    }
    let olmo3 = |fields| of("Olmo3ForCausalLM", fields);
    assert_eq!(olmo3(json!({ "rope_theta": 7.0 })), (5e5, 7.0, RopeScaling::Default));
    assert_eq!(olmo3(json!({ "rope_parameters": bare })), (5e5, 5e5, RopeScaling::Default));
}

/// HF `Phi3Config`.
#[test]
fn the_class_of_phi_3_has_a_context_of_pretraining_and_longrope_alone() {
    let longrope = |name: &str| {
        json!({ "rope_type": name, "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "long_factor": [2, 2, 2, 2, 2, 2, 2, 2], "original_max_position_embeddings": 64 })
    };
    let original = |fields: Value| match rope("Phi3ForCausalLM", fields).scaling {
        RopeScaling::LongRope(longrope) => {
            (longrope.original_max_position_embeddings, longrope.factor)
        }
        other => panic!("{other:?}"),
    };
    for name in ["longrope", "su", "yarn"] {
        let fields =
            json!({ "max_position_embeddings": 131_072, "rope_parameters": longrope(name) });
        assert_eq!(original(fields), (4_096, 32.0), "{name}");
    }
    let beside = json!({ "max_position_embeddings": 1_024, "rope_scaling": longrope("longrope"),
        "original_max_position_embeddings": 512 });
    assert_eq!(original(beside), (512, 2.0));
    let linear = json!({ "rope_scaling": { "type": "linear", "factor": 2.0 } });
    let error = model("Phi3ForCausalLM", linear).unwrap_err();
    let expected = "`rope_scaling.type` is \"linear\"; expected \"default\" or \"longrope\"";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn an_odd_rotating_part_is_rounded_up_where_the_class_rounds_it() {
    let third = json!({ "rope_parameters": { "partial_rotary_factor": 0.35 } });
    for architecture in [
        "GlmForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "GPTNeoXForCausalLM",
        "NemotronForCausalLM",
        "Phi3ForCausalLM",
        "BambaForCausalLM",
    ] {
        assert_eq!(parts(architecture, third.clone()), (6, 5), "{architecture}");
    }
    for architecture in ["PhiForCausalLM", "StableLmForCausalLM", "LlamaForCausalLM"] {
        let error = model(architecture, third.clone()).unwrap_err();
        assert!(error.contains("`rope_parameters.partial_rotary_factor` is 0.35"), "{error}");
    }
    // The config has no field for the part, so an error names the width.
    let narrow = json!({ "hidden_size": 40, "head_dim": null });
    assert_eq!(parts("GlmForCausalLM", narrow.clone()), (6, 5));
    let error = model("PhiForCausalLM", narrow).unwrap_err();
    assert!(error.contains("`hidden_size` is 40"), "{error}");
    let scaled = json!({ "rope_parameters": { "rope_type": "yarn", "factor": 2.0,
        "partial_rotary_factor": 0.35 } });
    let error = model("GlmForCausalLM", scaled).unwrap_err();
    assert!(error.contains("`rope_parameters.rope_type` is \"yarn\""), "{error}");
}

#[test]
fn the_part_of_a_head_has_the_fields_of_the_class() {
    let beside = json!({ "partial_rotary_factor": 1.0, "rope_theta": 7.0 });
    let bamba = rope("BambaForCausalLM", beside.clone());
    assert_eq!((bamba.rotary_dim, bamba.theta), (8, 7.0));
    let neox = rope("GPTNeoXForCausalLM", beside);
    assert_eq!((neox.rotary_dim, neox.theta), (4, 10_000.0));
    let neox = rope("GPTNeoXForCausalLM", json!({ "rotary_pct": 1.0, "rotary_emb_base": 7.0 }));
    assert_eq!((neox.rotary_dim, neox.theta), (16, 7.0));
    // Null replaces the default of half a head.
    assert_eq!(parts("GlmForCausalLM", json!({ "partial_rotary_factor": null })), (16, 16));
    assert_eq!(parts("MiniMaxForCausalLM", json!({ "rotary_dim": 8 })), (8, 8));
    let error = model("MiniMaxForCausalLM", json!({ "rotary_dim": 18 })).unwrap_err();
    assert!(error.contains("`rotary_dim` is 18; expected an even number"), "{error}");
    let error = model("LlamaForCausalLM", json!({ "partial_rotary_factor": 0.5 })).unwrap_err();
    assert!(error.contains("`partial_rotary_factor` is 0.5; expected 1"), "{error}");
}

/// The sections of Qwen2.5-VL and of Qwen3-VL, as HF cuts them.
#[test]
fn pairs_have_the_axes_of_their_family() {
    let axes = |architecture: &str, sections: Value| {
        let rope = json!({ "rope_type": "default", "rope_theta": 1e4, "mrope_section": sections });
        let text = json!({
            "model_type": format!("{architecture}_text"), "vocab_size": 64, "hidden_size": 64,
            "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
            "num_key_value_heads": 4, "head_dim": 16, "rope_parameters": rope,
        });
        let class = match architecture {
            "qwen3_vl" => "Qwen3VLForConditionalGeneration",
            _ => "Qwen2_5_VLForConditionalGeneration",
        };
        let config = json!({
            "architectures": [class], "model_type": architecture, "text_config": text,
        });
        let config = read(&config).unwrap();
        config.layers[0].mixer.attention().unwrap().rope.clone().unwrap().axes
    };
    assert_eq!(axes("qwen2_5_vl", json!([2, 3, 3])), Some(vec![0, 0, 1, 1, 1, 2, 2, 2]));
    assert_eq!(axes("qwen3_vl", json!([4, 2, 2])), Some(vec![0, 1, 2, 0, 1, 2, 0, 0]));
    for other in [json!([1, 1]), json!([2, 2, 2]), json!("2"), json!(null)] {
        assert_eq!(axes("qwen3_vl", other), None);
    }
}
