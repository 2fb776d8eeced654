//! Adapters that cannot be used are refused with the file, and the field or tensor at fault.

use std::{collections::BTreeMap, fs, path::Path};

use playhouse::{Engine, EngineConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{adapter, collect, config, config_of, folder, request, submit};

const MODEL: &str = "llama-gqa-f16";

/// Copies the adapter `a` of `model`, lets `change` spoil it, and returns the message of its load.
async fn refusal(engine: &Engine, model: &str, change: impl FnOnce(&Path)) -> String {
    refusal_of(engine, &adapter(model, "a"), change).await
}

/// Does the same with the adapter at `path`.
async fn refusal_of(engine: &Engine, path: &str, change: impl FnOnce(&Path)) -> String {
    let copy = TempDir::new().unwrap();
    for file in fs::read_dir(path).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    change(copy.path());
    let path = copy.path().to_string_lossy().into_owned();
    let loaded = engine.load_lora_adapter("bad", &path, false).await;
    loaded.unwrap_err().to_string()
}

fn set(folder: &Path, field: &str, value: Value) {
    let path = folder.join("adapter_config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config[field] = value;
    fs::write(path, config.to_string()).unwrap();
}

/// The tensors of a file: each one's entry in the header, and its bytes.
pub(crate) type Tensors = BTreeMap<String, (Value, Vec<u8>)>;

/// Writes the weights of an adapter again, with other tensors.
pub(crate) fn rewrite(folder: &Path, change: impl FnOnce(&mut Tensors)) {
    let path = folder.join("adapter_model.safetensors");
    let file = fs::read(&path).unwrap();
    let start = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&file[8..start]).unwrap();
    let mut tensors = Tensors::new();
    for (name, entry) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        let offset = |at: usize| start + entry["data_offsets"][at].as_u64().unwrap() as usize;
        let bytes = file[offset(0)..offset(1)].to_vec();
        tensors.insert(name, (entry, bytes));
    }
    change(&mut tensors);
    let (mut header, mut data) = (BTreeMap::new(), Vec::new());
    for (name, (mut entry, bytes)) in tensors {
        entry["data_offsets"] = json!([data.len(), data.len() + bytes.len()]);
        data.extend(bytes);
        header.insert(name, entry);
    }
    let header = serde_json::to_string(&header).unwrap();
    // The data begin at a multiple of eight bytes.
    let header = format!("{header:<width$}", width = header.len().next_multiple_of(8));
    let length = (header.len() as u64).to_le_bytes();
    fs::write(path, [&length[..], header.as_bytes(), &data[..]].concat()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_under_two_names_is_refused() {
    let engine = Engine::start(config(MODEL)).await.unwrap();
    let doubled = |tensors: &mut Tensors| {
        let (long, short) = ("base_model.model.model.layers.", "base_model.model.layers.");
        let again: Tensors = tensors
            .iter()
            .filter(|(name, _)| name.contains("layers.0.self_attn.q_proj"))
            .map(|(name, tensor)| (name.replace(long, short), tensor.clone()))
            .collect();
        assert_eq!(again.len(), 2);
        tensors.extend(again);
    };
    let message = refusal(&engine, MODEL, |folder| rewrite(folder, doubled)).await;
    assert!(message.contains("the module has matrices under another name, too"), "{message}");
    engine.shutdown().await;
}

/// A merge of files may leave a tensor under both names that PEFT's matrices may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_matrix_under_two_names_is_refused() {
    let engine = Engine::start(config(MODEL)).await.unwrap();
    for matrix in ["lora_A", "lora_B"] {
        let doubled = |tensors: &mut Tensors| {
            let name = tensors.keys().find(|name| name.contains(matrix)).cloned().unwrap();
            let other = name.replace(".weight", ".default.weight");
            let tensor = tensors[&name].clone();
            assert!(tensors.insert(other, tensor).is_none());
        };
        let message = refusal(&engine, MODEL, |folder| rewrite(folder, doubled)).await;
        let part = format!("{matrix}.default.weight`");
        assert!(message.contains(&part) && message.contains("the same part"), "{message}");
    }
    engine.shutdown().await;
}

/// No result depends on them, but a file must still be one that PEFT writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_the_matrices_of_indexers_are_told() {
    let model = "deepseek_v32";
    let engine = Engine::start(config(model)).await.unwrap();
    let indexer = "model.layers.0.self_attn.indexer.wk";
    let targets = json!(["kv_a_proj_with_mqa", "o_proj", "q_b_proj"]);
    for (field, value, expected) in [
        ("target_modules", targets, format!("does not name {indexer}")),
        ("rank_pattern", json!({"wk": 9}), "LoRA rank 9 is greater".to_owned()),
        ("rank_pattern", json!({"wk": 2}), format!("{indexer}.lora_A.weight` has shape [3, 32]")),
    ] {
        let message = refusal(&engine, model, |folder| set(folder, field, value)).await;
        assert!(message.contains(&expected), "{field}: {message}");
    }
    let alone = |tensors: &mut Tensors| {
        let name = format!("base_model.model.{indexer}.lora_B.weight");
        assert!(tensors.remove(&name).is_some());
    };
    let message = refusal(&engine, model, |folder| rewrite(folder, alone)).await;
    assert!(message.contains("lora_A or lora_B of the module is missing"), "{message}");
    engine.shutdown().await;
}

/// As in vLLM without `enable_tower_connector_lora`. Whole matrices of a projector are an error
/// there, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matrices_for_encoders_of_images_have_no_effect() {
    // Only one folder of the model has the files of an image processor, so that it has the layers.
    let with_images = config_of(folder().join("vision/qwen3_vl"));
    let with_images = EngineConfig { tokenizer: None, ..with_images };
    for base in [config("qwen3_vl"), with_images] {
        let engine = Engine::start(base).await.unwrap();
        let text = "base_model.model.model.layers.0.self_attn.q_proj";
        let copy = TempDir::new().unwrap();
        for file in fs::read_dir(adapter(MODEL, "a")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        rewrite(copy.path(), |tensors| {
            let of_text = tensors.iter().filter(|(name, _)| name.starts_with(text));
            let renamed = of_text.flat_map(|(name, tensor)| {
                ["visual.blocks.0.attn.proj", "model.visual.merger.linear_fc1"].map(|module| {
                    let module = format!("base_model.model.{module}");
                    (name.replace(text, &module), tensor.clone())
                })
            });
            *tensors = renamed.collect();
            assert_eq!(tensors.len(), 4);
        });
        let path = copy.path().to_string_lossy().into_owned();
        engine.load_lora_adapter("vision", &path, false).await.unwrap();
        let lora = engine.lora_adapter("vision").await.unwrap();
        let of_base = collect(submit(&engine, request(&[5, 6, 7], 4, None)).await).await;
        let adapted = collect(submit(&engine, request(&[5, 6, 7], 4, Some(&lora))).await).await;
        assert_eq!(adapted, of_base);
        let whole = |tensors: &mut Tensors| {
            let (_, tensor) = tensors.pop_first().unwrap();
            let name = "base_model.model.model.visual.merger.linear_fc1.weight";
            tensors.insert(name.to_owned(), tensor);
        };
        let message = refusal_of(&engine, &path, |folder| rewrite(folder, whole)).await;
        assert!(message.contains("modules_to_save may replace"), "{message}");
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stacked_experts_beside_a_gguf_file_take_no_adapters() {
    let base = folder().join("../formats/converted/granite_moe.gguf");
    let base = EngineConfig { max_model_len: Some(64), ..config_of(base) };
    let engine = Engine::start(base).await.unwrap();
    for (name, module) in [("c", "input_linear"), ("d", "experts")] {
        let message = refusal_of(&engine, &adapter("granite_moe", name), |_| ()).await;
        let is_told = message.contains(&format!("block_sparse_moe.{module}"));
        assert!(is_told && message.contains("takes no adapter"), "{name}: {message}");
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_told() {
    let engine = Engine::start(config(MODEL)).await.unwrap();
    let fields = [
        ("use_dora", json!(true), "use_dora = true"),
        ("bias", json!("all"), "bias = \"all\""),
        ("peft_type", json!("LOHA"), "peft_type = \"LOHA\""),
        ("r", json!(9), "LoRA rank 9 is greater than max_lora_rank 8."),
        ("r", json!(0), "r = 0"),
        ("init_lora_weights", json!("pissa"), "init_lora_weights = pissa"),
        ("layer_replication", json!([[0, 1]]), "layer_replication"),
        ("trainable_token_indices", json!([1]), "trainable_token_indices"),
        ("target_modules", json!(["nothing"]), "target_modules of adapter_config.json"),
        ("target_modules", json!("(?=x)"), "target_modules of adapter_config.json"),
        ("target_modules", json!("("), "target_modules"),
        ("lora_alpha", json!("much"), "adapter config"),
    ];
    for (field, value, expected) in fields {
        let message = refusal(&engine, MODEL, |folder| set(folder, field, value)).await;
        assert!(message.contains(expected), "{field}: {message}");
    }
    let config_file = |folder: &Path| folder.join("adapter_config.json");
    let weights = |folder: &Path| folder.join("adapter_model.safetensors");
    let message = refusal(&engine, MODEL, |f| fs::remove_file(config_file(f)).unwrap()).await;
    assert!(message.contains("No adapter found for"), "{message}");
    let message = refusal(&engine, MODEL, |f| fs::write(config_file(f), "{").unwrap()).await;
    assert!(message.contains("adapter_config.json: not a valid"), "{message}");
    let pickled = |folder: &Path| {
        fs::rename(weights(folder), folder.join("adapter_model.bin")).unwrap();
    };
    let message = refusal(&engine, MODEL, pickled).await;
    assert!(message.contains("never read"), "{message}");
    let of_mlx = |folder: &Path| {
        fs::rename(weights(folder), folder.join("adapters.safetensors")).unwrap();
    };
    let message = refusal(&engine, MODEL, of_mlx).await;
    assert!(message.contains("adapters of MLX are not read"), "{message}");
    // Wherever it is cut, the file is refused and not read beyond its end.
    let whole = fs::metadata(weights(Path::new(&adapter(MODEL, "a")))).unwrap().len();
    for length in [0, 4, 8, 100, whole / 2, whole - 1] {
        let cut = |folder: &Path| {
            let file = fs::OpenOptions::new().write(true).open(weights(folder)).unwrap();
            file.set_len(length).unwrap();
        };
        let message = refusal(&engine, MODEL, cut).await;
        assert!(message.contains("adapter_model.safetensors"), "{length}: {message}");
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_of_experts_that_the_config_does_not_name_are_refused() {
    let engine = Engine::start(config("granite_moe")).await.unwrap();
    for (name, expected) in [("c", "input_linear.weight"), ("d", "experts.down_proj")] {
        let unnamed = |folder: &Path| set(folder, "target_parameters", json!([]));
        let message = refusal_of(&engine, &adapter("granite_moe", name), unnamed).await;
        let expected = format!("does not name model.layers.0.block_sparse_moe.{expected}");
        assert!(message.contains(&expected), "{name}: {message}");
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adapter_of_another_base_is_refused_with_both_shapes() {
    let engine = Engine::start(config(MODEL)).await.unwrap();
    let message = refusal(&engine, "gpt2", |_| ()).await;
    assert!(message.contains("the base model has no linear layer"), "{message}");
    let message = refusal(&engine, "mistral-window", |_| ()).await;
    assert!(message.contains("has shape") && message.contains("need ["), "{message}");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adapter_of_another_base_is_refused_over_a_gguf_file() {
    let base = folder().join("../formats/converted/llama-linear.gguf");
    let engine = Engine::start(config_of(base)).await.unwrap();
    for (model, expected) in [
        (
            "gpt2",
            "`base_model.model.transformer.h.0.attn.c_attn.lora_A.weight`: the base model has",
        ),
        ("gemma", "k_proj.lora_B.weight` has shape [32, 3]"),
    ] {
        let path = folder().join("adapters_gguf").join(model).join("a");
        let loaded = engine.load_lora_adapter("bad", &path.to_string_lossy(), false).await;
        let message = loaded.unwrap_err().to_string();
        assert!(message.contains(expected), "{model}: {message}");
    }
    engine.shutdown().await;
}
