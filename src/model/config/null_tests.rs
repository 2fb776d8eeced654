//! Fields that are null. In transformers, null replaces the default of a class.

use serde_json::{Value, json};

use super::families_tests::{base, read};
use super::file::fields;
use super::{FeedForward, Mixer, ModelConfig};

fn model(architecture: &str, changes: Value) -> ModelConfig {
    let mut config = base(architecture);
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    read(&config).unwrap()
}

#[test]
fn a_boolean_that_is_null_is_false() {
    let of = |value: Value| fields(value).flag_or("flag", true).unwrap();
    assert_eq!(
        [of(json!({})), of(json!({ "flag": null })), of(json!({ "flag": true }))],
        [true, false, true]
    );
    for (architecture, field) in [
        ("FalconForCausalLM", "multi_query"),
        ("FalconForCausalLM", "parallel_attn"),
        ("BambaForCausalLM", "mamba_conv_bias"),
        ("FalconH1ForCausalLM", "mamba_conv_bias"),
        ("DeepseekV3ForCausalLM", "norm_topk_prob"),
    ] {
        let [absent, null, off] = [json!({}), json!({ field: null }), json!({ field: false })]
            .map(|changes| model(architecture, changes));
        assert_eq!(null, off, "{architecture}: {field}");
        assert_ne!(null, absent, "{architecture}: {field}");
    }
}

#[test]
fn the_norm_of_falcon_h1_follows_the_gate_if_its_field_is_null() {
    let before_gate = |changes: Value| {
        let mut changes = changes;
        changes["mamba_rms_norm"] = json!(true);
        let model = model("FalconH1ForCausalLM", changes);
        let Mixer::Parallel(parallel) = &model.layers[0].mixer else { panic!("not parallel") };
        parallel.mamba.norm.unwrap().before_gate
    };
    assert!(before_gate(json!({})));
    assert!(!before_gate(json!({ "mamba_norm_before_gate": null })));
}

#[test]
fn heads_share_the_hidden_size_if_their_width_is_null() {
    for architecture in ["Ernie4_5ForCausalLM", "SeedOssForCausalLM", "InternLM3ForCausalLM"] {
        let model = model(architecture, json!({ "head_dim": null, "hidden_size": 32 }));
        assert_eq!(model.layers[0].mixer.attention().unwrap().head_dim, 8, "{architecture}");
        assert!(matches!(model.layers[0].feed_forward, FeedForward::Mlp(_)));
    }
}

/// An alias that is null leaves the size that every model has, but replaces another field.
#[test]
fn an_alias_that_is_null_does_not_replace_a_value() {
    let model = model("BloomForCausalLM", json!({ "hidden_size": 32, "n_embed": null }));
    assert_eq!(model.hidden_size, 32);
    let aliases = [("n_embed", "hidden_size")];
    let inner = fields(json!({ "n_inner": null, "intermediate_size": 48 }));
    assert_eq!(
        inner.with_aliases(&[("n_inner", "intermediate_size")]).value("intermediate_size"),
        None
    );
    let both = fields(json!({ "n_embed": 8, "hidden_size": 32 })).with_aliases(&aliases);
    assert_eq!(both.size("hidden_size").unwrap(), Some(8));
}

/// Errors name a field of an inner object as the file does.
#[test]
fn an_alias_in_an_inner_object_is_named_as_in_the_file() {
    let outer = fields(json!({ "vision_config": { "num_attention_heads": "many" } }));
    let inner = outer.nested("vision_config").unwrap().unwrap();
    let inner = inner.with_aliases(&[("num_attention_heads", "num_heads")]);
    let error = inner.size("num_heads").unwrap_err().to_string();
    assert!(error.contains("vision_config.num_attention_heads"), "{error}");
}
