//! `quantization_config`: the format of the weights in a quantized checkpoint.

use serde_json::Value;

use super::ConfigError;
use super::file::Fields;
use crate::weights::{GptqFormat, Quantization};

const METHODS: &str = "\"gptq\", \"awq\" or \"compressed-tensors\"";

/// Reads `quantization_config`, or `compression_config`, which is its name in the first files of
/// compressed-tensors.
pub(super) fn read(config: &Fields) -> Result<Option<Quantization>, ConfigError> {
    if let Some(quantization) = config.nested("quantization_config")? {
        return of_method(&quantization).map(Some);
    }
    let compression = config.nested("compression_config")?;
    compression.map(|compression| compressed_tensors(&compression)).transpose()
}

fn of_method(config: &Fields) -> Result<Quantization, ConfigError> {
    match config.text("quant_method")? {
        Some("gptq") => gptq(config),
        Some("awq") => awq(config),
        Some("compressed-tensors") => compressed_tensors(config),
        Some(_) => Err(config.invalid("quant_method", METHODS)),
        None => Err(config.missing("quant_method", METHODS)),
    }
}

fn gptq(config: &Fields) -> Result<Quantization, ConfigError> {
    let bits = match config.size("bits")? {
        Some(bits @ (4 | 8)) => bits,
        Some(_) => return Err(config.invalid("bits", "4 or 8")),
        None => return Err(config.missing("bits", "4 or 8")),
    };
    let zeros_less_one = match config.text("checkpoint_format")? {
        None | Some("gptq") => true,
        Some("gptq_v2") => false,
        Some(_) => {
            return Err(config.invalid("checkpoint_format", "\"gptq\" or \"gptq_v2\""));
        }
    };
    // `dynamic` gives single modules their own settings.
    let dynamic = config.value("dynamic");
    if dynamic.is_some_and(|dynamic| dynamic.as_object().is_none_or(|rules| !rules.is_empty())) {
        return Err(config.invalid("dynamic", "nothing: the same settings for all modules"));
    }
    let group_size = group_size(config, "group_size")?;
    Ok(Quantization::Gptq(GptqFormat { bits, group_size, zeros_less_one }))
}

fn awq(config: &Fields) -> Result<Quantization, ConfigError> {
    // AutoAWQ's own files use other names for the same fields.
    let named = |names: [&'static str; 2]| {
        names.into_iter().find(|name| config.value(name).is_some()).unwrap_or(names[0])
    };
    let bits = named(["bits", "w_bit"]);
    match config.size(bits)? {
        Some(4) => {}
        Some(_) => return Err(config.invalid(bits, "4")),
        None => return Err(config.missing(bits, "4")),
    }
    if config.text("version")?.is_some_and(|version| !version.eq_ignore_ascii_case("gemm")) {
        return Err(config.invalid("version", "\"gemm\""));
    }
    if config.flag("zero_point")? == Some(false) {
        return Err(config.invalid("zero_point", "true"));
    }
    Ok(Quantization::Awq { group_size: group_size(config, named(["group_size", "q_group_size"]))? })
}

/// Reads the number of inputs that share a scale. `None`, -1 in the file, is the whole row.
fn group_size(config: &Fields, field: &str) -> Result<Option<usize>, ConfigError> {
    match config.value(field) {
        Some(value) if value.as_i64() == Some(-1) => Ok(None),
        Some(_) => config.size(field),
        None => Err(config.missing(field, "a number of inputs, or -1 for all of a row")),
    }
}

/// Checks that all groups of modules have schemes of integer weights.
fn compressed_tensors(config: &Fields) -> Result<Quantization, ConfigError> {
    refuse_online_transforms(config)?;
    let groups = config
        .nested("config_groups")?
        .ok_or_else(|| config.missing("config_groups", "an object of schemes"))?;
    for name in groups.names() {
        let group = groups.nested(&name)?.ok_or_else(|| groups.missing(&name, "a scheme"))?;
        let owner = if group.value("format").is_some() { &group } else { config };
        match owner.text("format")? {
            Some("pack-quantized" | "int-quantized" | "naive-quantized") => {}
            Some(_) => {
                return Err(owner.invalid("format", "\"pack-quantized\" or \"int-quantized\""));
            }
            None => {
                let expected = "\"pack-quantized\" or \"int-quantized\"";
                return Err(owner.missing("format", expected));
            }
        }
        // A group may have a scheme for activations only, for example those of attention.
        if let Some(weights) = group.nested("weights")? {
            check_weights(&weights)?;
        }
    }
    Ok(Quantization::CompressedTensors)
}

/// Refuses rotations (QuIP, SpinQuant) of a layer's inputs or outputs, because they would have to
/// be computed. Rotations of weights alone are part of the stored weights.
fn refuse_online_transforms(config: &Fields) -> Result<(), ConfigError> {
    const OFFLINE: [&str; 2] = ["weight_input", "weight_output"];
    let transforms = config.nested("transform_config")?;
    let Some(transforms) = transforms.filter(|transforms| !transforms.is_empty()) else {
        return Ok(());
    };
    let schemes = transforms
        .nested("config_groups")?
        .ok_or_else(|| transforms.missing("config_groups", "an object of transforms"))?;
    for name in schemes.names() {
        let scheme = schemes.nested(&name)?.ok_or_else(|| schemes.missing(&name, "a transform"))?;
        let Some(places) = scheme.value("apply") else { continue };
        let is_offline = |place: &Value| {
            let location = place.get("location").and_then(Value::as_str);
            location.is_some_and(|location| OFFLINE.contains(&location))
        };
        if !places.as_array().is_some_and(|places| places.iter().all(is_offline)) {
            let expected = "transforms at \"weight_input\" or \"weight_output\" alone";
            return Err(scheme.invalid("apply", expected));
        }
    }
    Ok(())
}

fn check_weights(weights: &Fields) -> Result<(), ConfigError> {
    if !matches!(weights.text("type")?, None | Some("int")) {
        return Err(weights.invalid("type", "\"int\""));
    }
    if !matches!(weights.size("num_bits")?, None | Some(4 | 8)) {
        return Err(weights.invalid("num_bits", "4 or 8"));
    }
    if !matches!(weights.text("strategy")?, None | Some("tensor" | "channel" | "group")) {
        return Err(weights.invalid("strategy", "\"tensor\", \"channel\" or \"group\""));
    }
    if weights.value("dynamic").is_some_and(|dynamic| *dynamic != Value::Bool(false)) {
        return Err(weights.invalid("dynamic", "false"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file::fields;
    use super::*;

    fn of(quantization: Value) -> Result<Quantization, String> {
        let config = fields(json!({ "quantization_config": quantization }));
        read(&config).map(Option::unwrap).map_err(|error| error.to_string())
    }

    fn with(mut base: Value, changes: Value) -> Value {
        for (field, value) in changes.as_object().unwrap() {
            base[field] = value.clone();
        }
        base
    }

    #[test]
    fn configs_of_the_known_writers_are_read() {
        let gptq = json!({ "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true,
            "sym": true, "dynamic": {}, "damp_percent": 0.01, "lm_head": false });
        let expect = |bits, group_size, zeros_less_one| {
            Ok(Quantization::Gptq(GptqFormat { bits, group_size, zeros_less_one }))
        };
        assert_eq!(of(gptq.clone()), expect(4, Some(128), true));
        let v2 = json!({ "checkpoint_format": "gptq_v2", "bits": 8, "group_size": -1 });
        assert_eq!(of(with(gptq, v2)), expect(8, None, false));
        let awq = json!({ "quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
            "zero_point": true, "modules_to_not_convert": null, "backend": "autoawq" });
        assert_eq!(of(awq), Ok(Quantization::Awq { group_size: Some(64) }));
        let awq = json!({ "quant_method": "awq", "w_bit": 4, "q_group_size": 128 });
        assert_eq!(of(awq), Ok(Quantization::Awq { group_size: Some(128) }));
        let weights = json!({ "num_bits": 4, "type": "int", "symmetric": true, "group_size": 128,
            "strategy": "group", "dynamic": false, "actorder": "weight", "observer": "minmax" });
        let group = json!({ "targets": ["Linear"], "weights": weights, "input_activations": null });
        let compressed = json!({ "quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": { "group_0": group }, "ignore": ["lm_head"], "kv_cache_scheme": null });
        assert_eq!(of(compressed), Ok(Quantization::CompressedTensors));
        assert_eq!(read(&fields(json!({ "quantization_config": null }))).unwrap(), None);
    }

    #[test]
    fn transforms_that_would_have_to_be_computed_are_refused() {
        let of_transforms = |transforms: Value| {
            of(json!({ "quant_method": "compressed-tensors", "format": "pack-quantized",
                "config_groups": {}, "transform_config": transforms }))
        };
        let at = |locations: &[&str]| {
            let apply = locations.iter().map(|location| json!({ "location": location }));
            let scheme = json!({ "type": "hadamard", "apply": apply.collect::<Vec<_>>() });
            of_transforms(json!({ "config_groups": { "R1": { "apply": [] }, "R2": scheme } }))
        };
        let accepted = Ok(Quantization::CompressedTensors);
        assert_eq!(of_transforms(Value::Null), accepted);
        assert_eq!(of_transforms(json!({})), accepted);
        assert_eq!(at(&["weight_output", "weight_input"]), accepted);
        for location in ["input", "output", "k_cache", "q_attn", "elsewhere"] {
            let error = at(&["weight_input", location]).unwrap_err();
            let field = "`quantization_config.transform_config.config_groups.R2.apply` is [";
            assert!(error.contains(field), "{error}");
            assert!(error.ends_with("at \"weight_input\" or \"weight_output\" alone"), "{error}");
        }
        for (transforms, expected) in [
            (json!({ "groups": {} }), "transform_config.config_groups` is missing"),
            (json!({ "config_groups": { "u": null } }), "config_groups.u` is missing"),
            (json!({ "config_groups": { "u": { "apply": {} } } }), "u.apply` is {}"),
            (json!({ "config_groups": { "u": { "apply": [7] } } }), "u.apply` is [7]"),
        ] {
            let error = of_transforms(transforms).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_unsupported_setting_is_named() {
        let gptq = json!({ "quant_method": "gptq", "bits": 4, "group_size": 128 });
        let awq = json!({ "quant_method": "awq", "bits": 4, "group_size": 128 });
        let compressed = |format: &str, weights| {
            json!({ "quant_method": "compressed-tensors", "format": format,
                "config_groups": { "group_0": { "weights": weights } } })
        };
        for (config, expected) in [
            (json!({ "quant_method": "bitsandbytes" }), "`quantization_config.quant_method` is"),
            (json!({ "bits": 4 }), "`quantization_config.quant_method` is missing"),
            (with(gptq.clone(), json!({ "bits": 3 })), "`quantization_config.bits` is 3"),
            (with(gptq.clone(), json!({ "group_size": null })), "group_size` is missing"),
            (with(gptq.clone(), json!({ "group_size": 0 })), "group_size` is 0"),
            (with(gptq.clone(), json!({ "checkpoint_format": "marlin" })), "is \"marlin\""),
            (with(gptq, json!({ "dynamic": { "a": {} } })), "`quantization_config.dynamic` is"),
            (with(awq.clone(), json!({ "version": "gemv" })), "expected \"gemm\""),
            (with(awq, json!({ "zero_point": false })), "`quantization_config.zero_point` is"),
            (compressed("float-quantized", json!({})), "format` is \"float-quantized\""),
            (
                compressed("pack-quantized", json!({ "type": "float" })),
                "`quantization_config.config_groups.group_0.weights.type` is \"float\"",
            ),
            (compressed("pack-quantized", json!({ "num_bits": 3 })), "num_bits` is 3"),
            (json!({ "quant_method": "compressed-tensors" }), "config_groups` is missing"),
        ] {
            let error = of(config).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
