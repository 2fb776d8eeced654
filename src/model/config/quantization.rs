//! `quantization_config`: the format of the weights in a quantized checkpoint.

mod compressed_tensors;
mod modelopt;

use serde_json::Value;

use self::compressed_tensors::compressed_tensors;
use self::modelopt::modelopt;
use super::ConfigError;
use super::file::Fields;
use crate::weights::{GptqFormat, Quantization, ScaleSharing};

const METHODS: &str = "\"gptq\", \"awq\", \"auto-round\", \"fp8\", \"fbgemm_fp8\", \
    \"modelopt\", \"compressed-tensors\", \"bitsandbytes\", \"bitnet\" or \"mxfp4\"";

/// Reads `quantization_config`, or `compression_config`, which is its name in the first files of
/// compressed-tensors. Without both, the file of NVIDIA's Model Optimizer counts.
pub(super) fn read(config: &Fields) -> Result<Option<Quantization>, ConfigError> {
    if let Some(quantization) = config.nested("quantization_config")? {
        return of_method(&quantization).map(Some);
    }
    match config.nested("compression_config")? {
        Some(compression) => compressed_tensors(&compression).map(Some),
        None => modelopt::of_own_file(config),
    }
}

fn of_method(config: &Fields) -> Result<Quantization, ConfigError> {
    match config.text("quant_method")? {
        Some("gptq") => gptq(config),
        Some("awq") => awq(config),
        Some("auto-round") => auto_round(config),
        Some("fp8") => fp8(config),
        // Llama 3.1 405B: a scale for each row.
        Some("fbgemm_fp8") => Ok(Quantization::Float8 { sharing: vec![ScaleSharing::Row] }),
        Some("modelopt" | "modelopt_fp4" | "modelopt_mixed") => modelopt(config),
        Some("compressed-tensors") => compressed_tensors(config),
        Some("bitsandbytes") => Ok(Quantization::BitsAndBytes),
        Some("bitnet") => bitnet(config),
        // The tensors show the modules that were not converted.
        Some("mxfp4") => Ok(Quantization::Mxfp4),
        Some(_) => Err(config.invalid("quant_method", METHODS)),
        None => Err(config.missing("quant_method", METHODS)),
    }
}

/// Reads the ternary weights of HF `BitNetQuantConfig`. Activations are not rounded.
fn bitnet(config: &Fields) -> Result<Quantization, ConfigError> {
    const CLASS: &str = "linear_class";
    if config.flag("use_rms_norm")?.unwrap_or(false) {
        return Err(config.invalid("use_rms_norm", "false"));
    }
    match config.text("quantization_mode")? {
        None | Some("offline") => {}
        Some(_) => {
            let expected = "\"offline\": weights that are ternary in the file";
            return Err(config.invalid("quantization_mode", expected));
        }
    }
    match config.text(CLASS)? {
        None | Some("bitlinear") => Ok(Quantization::BitNet { is_divided: true }),
        Some("autobitlinear") => Ok(Quantization::BitNet { is_divided: false }),
        Some(_) => Err(config.invalid(CLASS, "\"bitlinear\" or \"autobitlinear\"")),
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
    // `dynamic` gives single modules their own settings, or leaves them out: the tensors show
    // which ones.
    let changes_settings = |dynamic: &Value| {
        dynamic.as_object().is_none_or(|rules| rules.keys().any(|rule| !rule.starts_with("-:")))
    };
    if config.value("dynamic").is_some_and(changes_settings) {
        let expected = "rules that begin with \"-:\": the same settings for all modules";
        return Err(config.invalid("dynamic", expected));
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

/// Reads the formats of AutoRound that are those of others. The tensors show the modules that
/// `extra_config` leaves out.
fn auto_round(config: &Fields) -> Result<Quantization, ConfigError> {
    const PACKING: &str = "packing_format";
    const EXPECTED: &str = "\"auto_round:auto_gptq\" or \"auto_round:auto_awq\"";
    match config.text(PACKING)? {
        Some("auto_round:auto_gptq") => gptq(config),
        Some("auto_round:auto_awq") => awq(config),
        Some(_) => Err(config.invalid(PACKING, EXPECTED)),
        None => Err(config.missing(PACKING, EXPECTED)),
    }
}

/// Reads the floats of eight bits of HF `FineGrainedFP8Config`. Activations stay floats, so their
/// scheme has no effect.
fn fp8(config: &Fields) -> Result<Quantization, ConfigError> {
    if config.text("fmt")?.is_some_and(|format| format != "e4m3") {
        return Err(config.invalid("fmt", "\"e4m3\""));
    }
    const BLOCK: &str = "weight_block_size";
    let sharing = match config.value(BLOCK) {
        // transformers and vLLM store one scale then. Other writers store one for each row.
        None => vec![ScaleSharing::Tensor, ScaleSharing::Row],
        Some(block) => {
            let block = block_size(block);
            let invalid = || config.invalid(BLOCK, "two numbers above 0, or null");
            vec![ScaleSharing::Block(block.ok_or_else(invalid)?)]
        }
    };
    Ok(Quantization::Float8 { sharing })
}

/// Returns rows and columns of a block.
fn block_size(value: &Value) -> Option<[usize; 2]> {
    let size = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|size| *size > 0);
    let sizes: Vec<usize> = value.as_array()?.iter().map(size).collect::<Option<_>>()?;
    sizes.try_into().ok()
}

/// Reads the number of inputs that share a scale. `None`, -1 in the file, is the whole row.
fn group_size(config: &Fields, field: &str) -> Result<Option<usize>, ConfigError> {
    match config.value(field) {
        Some(value) if value.as_i64() == Some(-1) => Ok(None),
        Some(_) => config.size(field),
        None => Err(config.missing(field, "a number of inputs, or -1 for all of a row")),
    }
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
            "sym": true, "dynamic": { "-:.*gate$": {} }, "damp_percent": 0.01, "lm_head": false });
        let expect = |bits, group_size, zeros_less_one| {
            Ok(Quantization::Gptq(GptqFormat { bits, group_size, zeros_less_one }))
        };
        assert_eq!(of(gptq.clone()), expect(4, Some(128), true));
        let v2 = json!({ "checkpoint_format": "gptq_v2", "bits": 8, "group_size": -1 });
        assert_eq!(of(with(gptq, v2)), expect(8, None, false));
        let auto_round = json!({ "quant_method": "auto-round", "bits": 4, "group_size": 128,
            "packing_format": "auto_round:auto_gptq", "sym": true,
            "extra_config": { "lm_head": { "bits": 16 } } });
        assert_eq!(of(auto_round.clone()), expect(4, Some(128), true));
        let packing = json!({ "packing_format": "auto_round:auto_awq" });
        let awq = Ok(Quantization::Awq { group_size: Some(128) });
        assert_eq!(of(with(auto_round, packing)), awq);
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
        let sharing = vec![ScaleSharing::Group(128)];
        assert_eq!(of(compressed), Ok(Quantization::CompressedTensors { sharing }));
        let mxfp4 = json!({ "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"] });
        assert_eq!(of(mxfp4), Ok(Quantization::Mxfp4));
        assert_eq!(read(&fields(json!({ "quantization_config": null }))).unwrap(), None);
        let fp8 = json!({ "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "weight_block_size": [128, 64] });
        let expected = |sharing: &[_]| Ok(Quantization::Float8 { sharing: sharing.to_vec() });
        assert_eq!(of(fp8.clone()), expected(&[ScaleSharing::Block([128, 64])]));
        let one_or_rows = [ScaleSharing::Tensor, ScaleSharing::Row];
        assert_eq!(of(with(fp8, json!({ "weight_block_size": null }))), expected(&one_or_rows));
        let fbgemm = json!({ "quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
            "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.down_proj"] });
        assert_eq!(of(fbgemm), expected(&[ScaleSharing::Row]));
        let bitsandbytes = json!({ "quant_method": "bitsandbytes", "load_in_4bit": true,
            "bnb_4bit_quant_type": "nf4", "llm_int8_threshold": 6.0 });
        assert_eq!(of(bitsandbytes), Ok(Quantization::BitsAndBytes));
        let modelopt = json!({ "quant_method": "modelopt", "quant_algo": "FP8",
            "kv_cache_scheme": { "num_bits": 8, "type": "float" }, "ignore": ["lm_head"] });
        assert_eq!(of(modelopt), expected(&[ScaleSharing::Tensor]));
    }

    #[test]
    fn compressed_tensors_tell_which_elements_share_a_scale() {
        let of_groups = |format: &str, groups: &[Value]| {
            let named = groups.iter().enumerate();
            let groups: serde_json::Map<_, _> =
                named.map(|(i, group)| (format!("g{i}"), json!({ "weights": group }))).collect();
            of(json!({ "quant_method": "compressed-tensors", "format": format,
                "config_groups": groups }))
        };
        let float = |changes: Value| with(json!({ "num_bits": 8, "type": "float" }), changes);
        for (changes, expected) in [
            (json!({ "strategy": "channel" }), ScaleSharing::Row),
            (json!({ "strategy": "tensor" }), ScaleSharing::Tensor),
            (json!({}), ScaleSharing::Tensor),
            (json!({ "group_size": -1 }), ScaleSharing::Row),
            (
                json!({ "strategy": "block", "block_structure": [128, 64] }),
                ScaleSharing::Block([128, 64]),
            ),
            (
                json!({ "strategy": "block", "block_structure": "64x128" }),
                ScaleSharing::Block([64, 128]),
            ),
        ] {
            let sharing = vec![expected];
            let of_float = of_groups("float-quantized", &[float(changes)]);
            assert_eq!(of_float, Ok(Quantization::Float8 { sharing }));
        }
        let groups = [json!({ "group_size": 32 }), json!({ "strategy": "channel" })];
        let sharing = vec![ScaleSharing::Group(32), ScaleSharing::Row];
        let expected = Ok(Quantization::CompressedTensors { sharing });
        assert_eq!(of_groups("pack-quantized", &groups), expected);
        let small = json!({ "num_bits": 4, "type": "float", "strategy": "tensor_group",
            "group_size": 16, "symmetric": true, "dynamic": false });
        let expected = ScaleSharing::Group(16);
        let expected = Ok(Quantization::CompressedTensors { sharing: vec![expected] });
        assert_eq!(of_groups("nvfp4-pack-quantized", &[small]), expected);
        for (changes, expected) in [
            (json!({ "strategy": "block" }), "g0.weights.block_structure` is missing"),
            (
                json!({ "strategy": "block", "block_structure": [128] }),
                "block_structure` is [128]; expected two numbers above 0",
            ),
            (
                json!({ "strategy": "block", "block_structure": [0, 1] }),
                "block_structure` is [0,1]",
            ),
            (
                json!({ "strategy": "block", "block_structure": "128" }),
                "block_structure` is \"128\"",
            ),
            (json!({ "strategy": "channel", "group_size": 128 }), "group_size` is 128"),
            (json!({ "group_size": 128 }), "group_size` is 128"),
        ] {
            let error = of_groups("float-quantized", &[float(changes)]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let error = of_groups("pack-quantized", &[json!({ "strategy": "group" })]).unwrap_err();
        assert!(error.contains("g0.weights.group_size` is missing"), "{error}");
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
        let accepted = Ok(Quantization::CompressedTensors { sharing: Vec::new() });
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
            (json!({ "quant_method": "hqq" }), "`quantization_config.quant_method` is"),
            (json!({ "bits": 4 }), "`quantization_config.quant_method` is missing"),
            (with(gptq.clone(), json!({ "bits": 3 })), "`quantization_config.bits` is 3"),
            (with(gptq.clone(), json!({ "group_size": null })), "group_size` is missing"),
            (with(gptq.clone(), json!({ "group_size": 0 })), "group_size` is 0"),
            (with(gptq.clone(), json!({ "checkpoint_format": "marlin" })), "is \"marlin\""),
            (with(gptq, json!({ "dynamic": { "a": {} } })), "`quantization_config.dynamic` is"),
            (with(awq.clone(), json!({ "version": "gemv" })), "expected \"gemm\""),
            (with(awq, json!({ "zero_point": false })), "`quantization_config.zero_point` is"),
            (compressed("mxfp6-pack-quantized", json!({})), "format` is \"mxfp6-pack-quantized\""),
            (compressed("nvfp4-pack-quantized", json!({})), "group_0.weights.type` is null"),
            (
                compressed("mxfp4-pack-quantized", json!({ "type": "float", "num_bits": 8 })),
                "num_bits` is 8",
            ),
            (compressed("float-quantized", json!({})), "group_0.weights.type` is null"),
            (
                compressed("float-quantized", json!({ "type": "float", "num_bits": 4 })),
                "num_bits` is 4",
            ),
            (
                compressed("float-quantized", json!({ "type": "float", "strategy": "group" })),
                "strategy` is \"group\"",
            ),
            (json!({ "quant_method": "fp8", "fmt": "e5m2" }), "fmt` is \"e5m2\""),
            (json!({ "quant_method": "modelopt" }), "quant_algo` is missing"),
            (
                json!({ "quant_method": "auto-round", "packing_format": "auto_round:llm" }),
                "packing_format` is \"auto_round:llm\"",
            ),
            (json!({ "quant_method": "modelopt", "quant_algo": "MXFP8" }), "is \"MXFP8\""),
            (
                json!({ "quant_method": "fp8", "weight_block_size": [128] }),
                "weight_block_size` is [128]",
            ),
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
