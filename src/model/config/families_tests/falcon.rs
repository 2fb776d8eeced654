//! The first checkpoints of Falcon and StableLM.

use serde_json::{Value, json};

use super::{ModelConfig, base, read};

/// The number of key heads counts in the new architecture alone. The old one has one, or all.
#[test]
fn falcons_of_the_new_architecture_have_groups_of_heads() {
    let key_heads = |is_new: bool, multi_query: bool| {
        let mut config = base("FalconForCausalLM");
        config["num_key_value_heads"] = Value::Null;
        config["num_kv_heads"] = json!(2);
        config["new_decoder_architecture"] = json!(is_new);
        config["multi_query"] = json!(multi_query);
        let config = read(&config).unwrap();
        let attention = config.layers[0].mixer.attention().unwrap();
        attention.num_kv_heads
    };
    assert_eq!([key_heads(true, true), key_heads(false, true), key_heads(false, false)], [2, 1, 4]);
}

/// Fields as the folders' own code names them.
#[test]
fn the_first_checkpoints_of_falcon_and_stablelm_are_read() {
    let of = |name: &str, model_type: &str, fields: Value| {
        let mut config = base(name);
        config["model_type"] = json!(model_type);
        config["num_key_value_heads"] = Value::Null;
        for (field, value) in fields.as_object().unwrap() {
            config[field] = value.clone();
        }
        read(&config).unwrap()
    };
    let key_heads = |model: &ModelConfig| {
        let attention = model.layers[0].mixer.attention().unwrap();
        attention.num_kv_heads
    };
    let groups = of("RWForCausalLM", "RefinedWeb", json!({ "n_head": 4, "n_head_kv": 2 }));
    assert_eq!((key_heads(&groups), groups.norms.before_attention), (2, Some("ln_attn")));
    let one = of("RWForCausalLM", "RefinedWebModel", json!({ "n_head": 4, "multi_query": true }));
    assert_eq!((key_heads(&one), one.norms.before_attention), (1, Some("input_layernorm")));
    let epoch = json!({ "norm_eps": 0.5, "rope_pct": 0.5 });
    let epoch = of("StableLMEpochForCausalLM", "stablelm_epoch", epoch);
    assert_eq!(epoch.norm.eps, 0.5);
    let rope = epoch.layers[0].mixer.attention().unwrap().rope.as_ref().unwrap();
    assert_eq!(rope.rotary_dim, 8);
}
