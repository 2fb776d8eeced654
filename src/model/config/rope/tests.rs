//! Rope settings, in both forms of `config.json`.

use serde_json::json;

use super::super::file::fields;
use super::*;
use crate::model::families::llama;

/// Returns parameters of heads of width 4 that rotate as a whole.
fn rope(theta: f64, scaling: RopeScaling) -> RopeParameters {
    RopeParameters {
        theta,
        scaling,
        rotary_dim: 4,
        frequency_dim: 4,
        is_interleaved: false,
        is_backward: false,
        axes: None,
    }
}

/// Reads the parameters of a layer with heads of width 4 and 1,024 positions.
fn read_for(layer_type: &str, config: Value) -> Result<RopeParameters, String> {
    let rope = read(&fields(config), &llama::FAMILY, layer_type, 4, 1024);
    rope.map(Option::unwrap).map_err(|error| error.to_string())
}

fn scaling(parameters: Value) -> Result<RopeScaling, String> {
    read_for("full_attention", json!({ "rope_parameters": parameters })).map(|rope| rope.scaling)
}

#[test]
fn theta_comes_from_the_nearest_place() {
    let theta = |config| read_for("full_attention", config).unwrap().theta;
    assert_eq!(theta(json!({})), 10_000.0);
    assert_eq!(theta(json!({ "rope_theta": 7.0, "rope_scaling": null })), 7.0);
    assert_eq!(theta(json!({ "rope_theta": 7.0, "rope_parameters": {} })), 7.0);
    assert_eq!(theta(json!({ "rope_theta": 7.0, "rope_parameters": { "rope_theta": 8.0 } })), 8.0);
}

#[test]
fn both_forms_give_the_same() {
    let old = json!({ "rope_theta": 5.0, "rope_scaling": { "type": "dynamic", "factor": 2.0 } });
    let new = json!({ "rope_parameters":
        { "rope_type": "dynamic", "factor": 2, "rope_theta": 5 } });
    let expected = rope(5.0, RopeScaling::Dynamic { factor: 2.0 });
    assert_eq!(read_for("full_attention", old), Ok(expected.clone()));
    assert_eq!(read_for("full_attention", new), Ok(expected));
}

#[test]
fn each_layer_type_may_have_its_own() {
    let config = json!({ "rope_parameters": {
        "full_attention": { "rope_type": "linear", "factor": 8.0, "rope_theta": 1e6 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
    } });
    let full = read_for("full_attention", config.clone()).unwrap();
    assert_eq!(full, rope(1e6, RopeScaling::Linear { factor: 8.0 }));
    let sliding = read_for("sliding_attention", config).unwrap();
    assert_eq!(sliding, rope(1e4, RopeScaling::Default));
    let half = json!({ "rope_parameters": { "full_attention": {} } });
    let error = read_for("sliding_attention", half).unwrap_err();
    assert!(error.contains("`rope_parameters.sliding_attention` is missing"), "{error}");
}

#[test]
fn the_context_of_pretraining_is_found() {
    let llama3 = json!({ "rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
        "high_freq_factor": 4 });
    let original = |config| match read_for("full_attention", config).unwrap().scaling {
        RopeScaling::Llama3(llama3) => llama3.original_max_position_embeddings,
        other => panic!("{other:?}"),
    };
    assert_eq!(original(json!({ "rope_parameters": llama3 })), 1024);
    let mut inside = llama3.clone();
    inside["original_max_position_embeddings"] = json!(64);
    assert_eq!(original(json!({ "rope_parameters": inside })), 64);
    // Phi-3 writes the field beside `rope_parameters`. That value has precedence.
    let beside = json!({ "rope_parameters": inside, "original_max_position_embeddings": 32 });
    assert_eq!(original(beside), 32);
}

#[test]
fn yarn_defaults() {
    let scaling = scaling(json!({ "rope_type": "yarn", "factor": null, "beta_fast": 0,
        "original_max_position_embeddings": 256 }));
    let expected = YarnScaling {
        factor: 4.0,
        original_max_position_embeddings: 256,
        attention_factor: None,
        beta_fast: 32.0,
        beta_slow: 1.0,
        mscale: None,
        mscale_all_dim: None,
        truncate: true,
    };
    assert_eq!(scaling, Ok(RopeScaling::Yarn(expected)));
}

#[test]
fn an_error_names_the_field_and_its_value() {
    for (parameters, expected) in [
        (
            json!({ "rope_type": "mrope" }),
            "`rope_parameters.rope_type` is \"mrope\"; expected one of",
        ),
        (json!({ "rope_type": "linear" }), "`rope_parameters.factor` is missing"),
        (json!({ "rope_type": "linear", "factor": 0 }), "`rope_parameters.factor` is 0; expected"),
        (
            json!({ "partial_rotary_factor": 0.5 }),
            "`rope_parameters.partial_rotary_factor` is 0.5; expected 1: whole heads rotate",
        ),
        (json!({ "rope_theta": "1e4" }), "`rope_parameters.rope_theta` is \"1e4\""),
        (
            json!({ "rope_type": "llama3", "factor": 8, "low_freq_factor": 0 }),
            "`rope_parameters.low_freq_factor` is 0; expected a number above 0",
        ),
        (
            json!({ "rope_type": "longrope", "short_factor": [1], "long_factor": [1, 1] }),
            "`rope_parameters.short_factor` is [1]; expected a list of 2 numbers above 0",
        ),
        (json!([]), "`rope_parameters` is []; expected an object"),
    ] {
        let message = scaling(parameters).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}
