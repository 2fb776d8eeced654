//! The layers with a sliding window, by family.

use serde_json::{Value, json};

use super::super::file::fields;
use super::windows::{self, FULL, SLIDING, WindowRule};

/// Returns the windows of three layers.
fn windows(rule: WindowRule, mut config: Value) -> Result<Vec<Option<u32>>, String> {
    config["num_hidden_layers"] = json!(3);
    windows::read(&fields(config), rule).map_err(|error| error.to_string())
}

/// The same as in HF `MistralConfig` and `MistralModel`.
#[test]
fn all_mistral_layers_have_a_window() {
    let rule = WindowRule::Always;
    assert_eq!(windows(rule, json!({ "sliding_window": 24 })), Ok(vec![Some(24); 3]));
    assert_eq!(windows(rule, json!({ "sliding_window": null })), Ok(vec![None; 3]));
    assert_eq!(windows(rule, json!({})), Ok(vec![Some(4096); 3]));
}

/// The same as in HF `Qwen2Config.__post_init__`.
#[test]
fn qwen_layers_from_max_window_layers_on_have_a_window() {
    let rule = WindowRule::FromMaxWindowLayers;
    let config = json!({ "sliding_window": 24, "max_window_layers": 1 });
    assert_eq!(windows(rule, config.clone()), Ok(vec![None; 3]));
    let on = |mut config: Value| {
        config["use_sliding_window"] = json!(true);
        windows(rule, config)
    };
    assert_eq!(on(config), Ok(vec![None, Some(24), Some(24)]));
    assert_eq!(on(json!({ "sliding_window": 24, "max_window_layers": 0 })), Ok(vec![Some(24); 3]));
    assert_eq!(on(json!({ "max_window_layers": 2 })), Ok(vec![None, None, Some(4096)]));
    assert_eq!(on(json!({ "sliding_window": 24 })), Ok(vec![None; 3]));
    assert_eq!(on(json!({ "sliding_window": null, "max_window_layers": 0 })), Ok(vec![None; 3]));
    let error = on(json!({ "max_window_layers": 0.5 })).unwrap_err();
    assert!(error.contains("`max_window_layers` is 0.5; expected an integer from 0"), "{error}");
}

/// The same as in HF `Qwen2MoeConfig.__post_init__`, and in `Qwen3MoeModel`.
#[test]
fn qwen_mixtures_have_windows_in_every_other_layer_or_in_all() {
    let config = |used: bool, first: usize| json!({ "use_sliding_window": used, "sliding_window": 24, "max_window_layers": first });
    for (rule, first, expected) in [
        (WindowRule::EveryOther, 28, [Some(24), None, Some(24)]),
        (WindowRule::EveryOther, 2, [Some(24), None, None]),
        (WindowRule::IfUsed, 2, [Some(24); 3]),
    ] {
        assert_eq!(windows(rule, config(true, first)), Ok(expected.to_vec()), "{rule:?}");
        assert_eq!(windows(rule, config(false, first)), Ok(vec![None; 3]), "{rule:?}");
    }
}

#[test]
fn llama_layers_have_no_window() {
    assert_eq!(windows(WindowRule::Never, json!({ "sliding_window": 24 })), Ok(vec![None; 3]));
}

#[test]
fn layer_types_override_the_rule_of_the_family() {
    let listed = |window: Value, types: Value| {
        let config = json!({ "sliding_window": window, "use_sliding_window": true,
            "max_window_layers": 0, "layer_types": types });
        windows(WindowRule::FromMaxWindowLayers, config)
    };
    let mix = json!([SLIDING, FULL, SLIDING]);
    assert_eq!(listed(json!(9), mix.clone()), Ok(vec![Some(9), None, Some(9)]));
    for (window, types, expected) in [
        (json!(9), json!([FULL]), "expected a list of 3 (num_hidden_layers) of"),
        (json!(9), json!([FULL, FULL, "linear_attention"]), "of \"full_attention\" or \"sliding"),
        (json!(9), json!("full_attention"), "`layer_types` is \"full_attention\""),
        (json!(null), mix, "times \"full_attention\", as no sliding window is in use"),
    ] {
        let error = listed(window, types).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_window_must_be_a_size() {
    let error = windows(WindowRule::Always, json!({ "sliding_window": 0 })).unwrap_err();
    assert!(error.contains("`sliding_window` is 0; expected an integer from 1"), "{error}");
}

#[test]
fn the_number_of_layers_is_bounded() {
    let config = fields(json!({ "num_hidden_layers": 4097 }));
    let error = windows::read(&config, WindowRule::Never).unwrap_err().to_string();
    assert!(error.contains("`num_hidden_layers` is 4097; expected an integer from 1"), "{error}");
}
