//! `quantization_config` of NVIDIA's Model Optimizer, and the file that its first versions have
//! written in its place: vLLM's `ModelOptQuantConfigBase`.
//!
//! The tensors show the modules that `ignore` or `exclude_modules` leaves out. Scales of the KV
//! cache have no effect, because it has a format of its own.

use super::super::ConfigError;
use super::super::file::Fields;
use crate::model_files;
use crate::weights::{Quantization, ScaleSharing};

/// The file beside `config.json`.
const OWN_FILE: &str = "hf_quant_config.json";
const OBJECT: &str = "quantization";
const ALGORITHM: &str = "quant_algo";
const EXPECTED: &str =
    "\"FP8\", \"FP8_PER_CHANNEL_PER_TOKEN\", \"NVFP4\", \"W4A16_NVFP4\" or \"MIXED_PRECISION\"";
const OF_LAYERS: &str = "quantized_layers";
const EXPECTED_OF_LAYERS: &str = "\"FP8\", \"NVFP4\" or \"W4A16_NVFP4\"";

/// Inputs of a group of NVFP4, where no field names them.
const GROUP_SIZE: usize = 16;

/// Reads the own file in the folder of `config`, if there is one.
pub(super) fn of_own_file(config: &Fields) -> Result<Option<Quantization>, ConfigError> {
    let path = config.path().with_file_name(OWN_FILE);
    // A GGUF file has its format in itself.
    let is_folder = config.path().file_name().is_some_and(|name| name == "config.json");
    if !is_folder || !model_files::exists(&path) {
        return Ok(None);
    }
    let file = Fields::read(&path)?;
    let object = file.nested(OBJECT)?;
    let object = object.ok_or_else(|| file.missing(OBJECT, "an object with `quant_algo`"))?;
    // The file says so of checkpoints with a format of the KV cache alone.
    match object.value(ALGORITHM) {
        None if object.value("kv_cache_quant_algo").is_some() => Ok(None),
        _ => modelopt(&object).map(Some),
    }
}

/// Reads the algorithm of all modules, or those of each.
pub(super) fn modelopt(config: &Fields) -> Result<Quantization, ConfigError> {
    // Some configs have the object of the own file.
    if let Some(object) = config.nested(OBJECT)? {
        return modelopt(&object);
    }
    if config.flag("nvfp4_embed")? == Some(true) {
        return Err(config.invalid("nvfp4_embed", "false: embeddings are floats"));
    }
    let algorithm = algorithm(config, EXPECTED)?;
    match algorithm.as_str() {
        "FP8" => Ok(Quantization::Float8 { sharing: vec![ScaleSharing::Tensor] }),
        "FP8_PER_CHANNEL_PER_TOKEN" => {
            Ok(Quantization::Float8 { sharing: vec![ScaleSharing::Row] })
        }
        "NVFP4" | "W4A16_NVFP4" => {
            Ok(Quantization::ModelOpt { sharing: vec![ScaleSharing::Group(group_size(config)?)] })
        }
        "MIXED_PRECISION" => mixed(config),
        _ => Err(config.invalid(ALGORITHM, EXPECTED)),
    }
}

/// Reads the algorithms of single modules.
fn mixed(config: &Fields) -> Result<Quantization, ConfigError> {
    let missing = || config.missing(OF_LAYERS, "an object with an algorithm for each module");
    let layers = config.nested(OF_LAYERS)?.ok_or_else(missing)?;
    let mut sharing = Vec::new();
    for name in layers.names() {
        let layer = layers.nested(&name)?.ok_or_else(|| layers.missing(&name, "an object"))?;
        let of_layer = match algorithm(&layer, EXPECTED_OF_LAYERS)?.as_str() {
            "FP8" => ScaleSharing::Tensor,
            "NVFP4" | "W4A16_NVFP4" => ScaleSharing::Group(group_size(&layer)?),
            _ => return Err(layer.invalid(ALGORITHM, EXPECTED_OF_LAYERS)),
        };
        if !sharing.contains(&of_layer) {
            sharing.push(of_layer);
        }
    }
    Ok(Quantization::ModelOpt { sharing })
}

/// Returns the name of the algorithm. Some writers use small letters.
fn algorithm(config: &Fields, expected: &str) -> Result<String, ConfigError> {
    let name = config.text(ALGORITHM)?;
    name.map(str::to_uppercase).ok_or_else(|| config.missing(ALGORITHM, expected))
}

fn group_size(config: &Fields) -> Result<usize, ConfigError> {
    Ok(config.size("group_size")?.unwrap_or(GROUP_SIZE))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::file::fields;
    use super::*;

    fn of(config: Value) -> Result<Quantization, String> {
        modelopt(&fields(config)).map_err(|error| error.to_string())
    }

    fn nvfp4(group_size: usize) -> Quantization {
        Quantization::ModelOpt { sharing: vec![ScaleSharing::Group(group_size)] }
    }

    /// The fields are those of published checkpoints, and of vLLM's readers.
    #[test]
    fn algorithms_are_read() {
        let published = json!({
            "config_groups": { "group_0": {
                "input_activations": { "dynamic": false, "num_bits": 4, "type": "float",
                    "group_size": 16 },
                "weights": { "dynamic": false, "num_bits": 4, "type": "float", "group_size": 16 },
            } },
            "ignore": ["lm_head", "model.layers.0.self_attn*"], "quant_algo": "NVFP4",
            "kv_cache_scheme": { "dynamic": false, "num_bits": 8, "type": "float" },
            "producer": { "name": "modelopt", "version": "0.37.0" }, "quant_method": "modelopt",
        });
        assert_eq!(of(published), Ok(nvfp4(16)));
        assert_eq!(of(json!({ "quant_algo": "w4a16_nvfp4", "group_size": 32 })), Ok(nvfp4(32)));
        let rows = Quantization::Float8 { sharing: vec![ScaleSharing::Row] };
        assert_eq!(of(json!({ "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN" })), Ok(rows));
        let layers = json!({ "model.layers.0.mlp.down_proj": { "quant_algo": "FP8" },
            "model.layers.1.mlp.down_proj": { "quant_algo": "NVFP4", "group_size": 16 } });
        let sharing = vec![ScaleSharing::Tensor, ScaleSharing::Group(16)];
        let mixed = json!({ "quant_algo": "MIXED_PRECISION", "quantized_layers": layers });
        assert_eq!(of(mixed), Ok(Quantization::ModelOpt { sharing }));
    }

    #[test]
    fn other_algorithms_are_refused_by_their_field() {
        let layer = json!({ "l": { "quant_algo": "INT4_AWQ" } });
        for (config, expected) in [
            (json!({ "quant_algo": "NVFP4_AWQ" }), "`quant_algo` is \"NVFP4_AWQ\""),
            (json!({ "quant_algo": "MIXED_PRECISION" }), "`quantized_layers` is missing"),
            (
                json!({ "quant_algo": "MIXED_PRECISION", "quantized_layers": layer }),
                "`quantized_layers.l.quant_algo` is \"INT4_AWQ\"",
            ),
            (json!({ "quant_algo": "NVFP4", "nvfp4_embed": true }), "`nvfp4_embed` is true"),
            (json!({ "quantization": {} }), "`quantization.quant_algo` is missing"),
        ] {
            let error = of(config).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// The file is that of version 0.29 of the package and of earlier ones.
    #[test]
    fn a_file_beside_the_config_counts_without_an_object_in_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let write = |name: &str, content: Value| {
            std::fs::write(folder.path().join(name), content.to_string()).unwrap();
        };
        let read = |config: Value| {
            write("config.json", config);
            let config = Fields::read(&folder.path().join("config.json")).unwrap();
            super::super::read(&config).map_err(|error| error.to_string())
        };
        assert_eq!(read(json!({})), Ok(None));
        let own = |algorithm: &str| {
            json!({ "producer": { "name": "modelopt", "version": "0.23.0" }, "quantization": {
                "quant_algo": algorithm, "kv_cache_quant_algo": "FP8", "group_size": 16,
                "exclude_modules": ["lm_head"],
            } })
        };
        write(OWN_FILE, own("NVFP4"));
        assert_eq!(read(json!({})), Ok(Some(nvfp4(16))));
        let other = json!({ "quantization_config": { "quant_method": "mxfp4" } });
        assert_eq!(read(other), Ok(Some(Quantization::Mxfp4)));
        write(OWN_FILE, own("FP8"));
        let fp8 = Quantization::Float8 { sharing: vec![ScaleSharing::Tensor] };
        assert_eq!(read(json!({})), Ok(Some(fp8)));
        write(OWN_FILE, own("W4A8_AWQ"));
        let error = read(json!({})).unwrap_err();
        assert!(error.contains(OWN_FILE) && error.contains("quantization.quant_algo"), "{error}");
        write(OWN_FILE, json!({ "quantization": { "kv_cache_quant_algo": "FP8" } }));
        assert_eq!(read(json!({})), Ok(None));
    }
}
