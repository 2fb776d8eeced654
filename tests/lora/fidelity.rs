//! Each row of a batch of eight equals its own model: the base model, or the model with one of two
//! adapters. `fidelity/make_adapters.py` made the adapters and the answers of transformers with
//! peft. `fidelity/make_gguf_adapters.py` made those of models in GGUF files.

use std::path::PathBuf;

use playhouse::{
    Engine, EngineConfig,
    api::{MediaSource, Modality, PauseMode, RawMedia, RawRequest},
    config::Quantization,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Output, adapter,
    bad_files::{Tensors, rewrite},
    collect, config, config_of, folder, request, submit,
};

/// Largest accepted difference between a log-probability and transformers'.
const TOLERANCE: f64 = 1e-4;
/// The same for MiniMax with adapters. Its lightning attention has large numbers, for which
/// transformers differs by 3e-4 between float32 and float64.
const MINIMAX_TOLERANCE: f64 = 1e-3;
/// The same for Granite Swash. Its adapter `b` makes differences of the base model four times as
/// large. They are 9e-6 between float32 and float64 in transformers.
const GRANITE_SWA_TOLERANCE: f64 = 2e-4;
/// Requests in flight.
const IN_FLIGHT: usize = 8;

/// One recorded continuation.
#[derive(Deserialize)]
pub(crate) struct Recorded {
    adapter: Option<String>,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    logprobs: Vec<f64>,
}

/// A model whose adapters are in a folder of the fidelity tests.
pub(crate) struct Case {
    pub(crate) adapters: &'static str,
    pub(crate) model: String,
}

impl Case {
    fn path(&self, file: &str) -> PathBuf {
        folder().join(self.adapters).join(&self.model).join(file)
    }

    fn recorded(&self) -> Vec<Recorded> {
        let answers = std::fs::read_to_string(self.path("answers.json")).unwrap();
        serde_json::from_str(&answers).unwrap()
    }
}

fn models(adapters: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder().join(adapters)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs the recorded prompts, repeated until eight are in flight, in one engine.
pub(crate) async fn run(case: &Case, config: EngineConfig) -> Vec<(Recorded, Output)> {
    let engine = Engine::start(config).await.unwrap();
    let (mut loaded, recorded) = (Vec::new(), case.recorded());
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let path = case.path(name);
        if path.is_dir() {
            engine.load_lora_adapter(name, &path.to_string_lossy(), false).await.unwrap();
            let has_answer = recorded.iter().any(|each| each.adapter.as_deref() == Some(name));
            assert!(has_answer, "{}: no answer of adapter {name}", case.model);
            loaded.push(name);
        }
    }
    if case.model == "granite_moe" {
        assert_eq!(loaded, ["a", "b", "c", "d", "f"], "each form of the parameters of experts");
    }
    engine.pause(PauseMode::Keep).await.unwrap();
    let mut streams = Vec::new();
    let count = case.recorded().len().max(IN_FLIGHT);
    for recorded in case.recorded().into_iter().chain(case.recorded()).take(count) {
        let lora = match &recorded.adapter {
            Some(name) => Some(engine.lora_adapter(name).await.unwrap()),
            None => None,
        };
        let request = request(&recorded.prompt, recorded.tokens.len(), lora.as_ref());
        streams.push((recorded, submit(&engine, request).await));
    }
    engine.resume();
    let mut outputs = Vec::new();
    for (recorded, stream) in streams {
        outputs.push((recorded, collect(stream).await));
    }
    engine.shutdown().await;
    outputs
}

/// Compares each row with the recorded answers.
async fn check(case: &Case, base: impl Fn() -> EngineConfig) {
    for tokens in [2048, 16] {
        let config =
            EngineConfig { max_num_batched_tokens: tokens, max_num_seqs: IN_FLIGHT, ..base() };
        compare(case, run(case, config).await);
    }
}

/// Compares each output with its recorded answer.
pub(crate) fn compare(case: &Case, outputs: Vec<(Recorded, Output)>) {
    for (recorded, output) in outputs {
        let what = format!("{}, adapter {:?}", case.model, recorded.adapter);
        assert_eq!(output.tokens, recorded.tokens, "{what}");
        let pairs = output.logprobs.iter().zip(&recorded.logprobs);
        let worst = pairs.map(|(got, want)| (f64::from(*got) - want).abs());
        let worst = worst.fold(0.0, f64::max);
        let tolerance = match (case.model.as_str(), &recorded.adapter) {
            ("minimax", Some(_)) => MINIMAX_TOLERANCE,
            ("granite_swa", Some(_)) => GRANITE_SWA_TOLERANCE,
            _ => TOLERANCE,
        };
        assert!(worst <= tolerance, "{what}: {worst}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_equals_its_own_model() {
    let models = models("adapters");
    assert!(models.len() >= 4, "{models:?}");
    for model in models {
        let case = Case { adapters: "adapters", model };
        // The cache of these has no room for their whole context.
        let max_model_len = case.model.starts_with("gpt_oss").then_some(512);
        check(&case, || EngineConfig { max_model_len, ..config(&case.model) }).await;
    }
}

/// The layers of these models have the matrices of two adapters beside their weights, which are not
/// read. `fidelity/make_phi4_adapters.py` made the adapters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_over_layers_of_peft_equals_its_own_model() {
    let models = models("adapters_phi4");
    assert_eq!(models, ["phi4mm", "phi4mm-wide"]);
    for model in models {
        let case = Case { adapters: "adapters_phi4", model };
        check(&case, || config_of(folder().join("phi4").join(&case.model))).await;
    }
}

/// Adapters may have matrices for the encoder of sounds, which have no effect. The script
/// `fidelity/make_granite_speech.py` made the adapters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_beside_an_encoder_of_sounds_equals_its_own_model() {
    let models = models("adapters_granite_speech");
    assert_eq!(models, ["granite_speech"]);
    for model in models {
        let case = Case { adapters: "adapters_granite_speech", model };
        check(&case, || config_of(folder().join("hearing").join(&case.model))).await;
    }
}

/// A recorded continuation of a prompt with a sound.
#[derive(Deserialize)]
struct Heard {
    /// Files of sounds, one after the other.
    parts: Vec<String>,
    #[serde(flatten)]
    recorded: Recorded,
}

/// The answers are those of PEFT without the matrices for the encoder of sounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_about_a_sound_equals_its_own_model() {
    let model = "granite_speech".to_owned();
    let case = Case { adapters: "adapters_granite_speech", model };
    let heard = std::fs::read_to_string(case.path("heard.json")).unwrap();
    let heard: Vec<Heard> = serde_json::from_str(&heard).unwrap();
    let names: Vec<_> = heard.iter().map(|it| it.recorded.adapter.as_deref()).collect();
    assert_eq!(names, [None, Some("a"), Some("b")]);
    let config = config_of(folder().join("hearing").join(&case.model));
    let engine = Engine::start(config).await.unwrap();
    let mut outputs = Vec::new();
    for Heard { parts, recorded } in heard {
        let lora = match &recorded.adapter {
            Some(name) => {
                let path = case.path(name).to_string_lossy().into_owned();
                Some(engine.load_lora_adapter(name, &path, false).await.unwrap())
            }
            None => None,
        };
        let request = request(&recorded.prompt, recorded.tokens.len(), lora.as_ref());
        let [part] = &parts[..] else { unreachable!() };
        let file = std::fs::read(folder().join(format!("speech/{part}.wav"))).unwrap();
        let sound = RawMedia {
            modality: Modality::Audio,
            source: MediaSource::File(file.into()),
            uuid: None,
            kwargs: serde_json::Map::new(),
        };
        let request = RawRequest { media: [sound].into(), ..request };
        outputs.push((recorded, collect(submit(&engine, request).await).await));
    }
    engine.shutdown().await;
    compare(&case, outputs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_of_media_may_have_an_adapter() {
    let model = folder().join("phi4/phi4mm");
    let path = |name: &str| folder().join("adapters_phi4/phi4mm").join(name);
    let loras = json!({ "image": path("a"), "audio": path("b") }).to_string();
    let default_mm_loras = Some(serde_json::from_value(json!(loras)).unwrap());
    let engine = EngineConfig { default_mm_loras, ..config_of(model.clone()) };
    let engine = Engine::start(engine).await.unwrap();
    for (kinds, expected) in [
        (&[][..], None),
        (&[Modality::Image, Modality::Image], Some("image")),
        (&[Modality::Audio, Modality::Video], Some("audio")),
        (&[Modality::Audio, Modality::Image], None),
    ] {
        let found = engine.default_lora_adapter(kinds).await.unwrap();
        assert_eq!(found.as_ref().map(|it| &*it.name), expected, "{kinds:?}");
    }
    engine.shutdown().await;
    let default_mm_loras = Some(serde_json::from_value(json!(r#"{"audio": "nowhere"}"#)).unwrap());
    let without_files = EngineConfig { default_mm_loras, ..config_of(model) };
    let why = Engine::start(without_files).await.err().unwrap().to_string();
    assert!(why.starts_with("default_mm_loras: ") && why.contains("nowhere"), "{why}");
}

/// The files have other names, and rows in another order. Adapters have those of transformers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_over_a_gguf_file_equals_its_own_model() {
    let models = models("adapters_gguf");
    assert_eq!(models.len(), 23, "{models:?}");
    for model in models {
        let case = Case { adapters: "adapters_gguf", model };
        let base = || EngineConfig { max_model_len: Some(64), ..config_of(converted(&case.model)) };
        check(&case, base).await;
    }
}

/// Returns the path of a file that llama.cpp's converter made.
fn converted(model: &str) -> PathBuf {
    folder().join("../formats/converted").join(format!("{model}.gguf"))
}

/// The converter has multiplied the matrices by numbers that the file does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_whose_matrices_are_multiplied_takes_no_adapters() {
    let refused = Engine::start(config_of(converted("falcon_h1"))).await.err().unwrap();
    let message = refused.to_string();
    assert!(message.contains("enable_lora") && message.contains("factors"), "{message}");
}

/// Exchanges the inputs and outputs of the experts' matrices. PEFT does so for a class that does
/// not say in which order the axes of its parameters are.
fn exchange(tensors: &mut Tensors, num_experts: usize) {
    let is_a = |name: &&String| name.contains("experts") && name.ends_with("lora_A.weight");
    let names: Vec<String> = tensors.keys().filter(is_a).cloned().collect();
    assert!(!names.is_empty());
    for name in names {
        let other = name.replace("lora_A", "lora_B");
        let [(mut a, of_a), (mut b, of_b)] =
            [&name, &other].map(|name| tensors.remove(name).unwrap());
        let shape = |entry: &Value| -> [usize; 2] {
            serde_json::from_value(entry["shape"].clone()).unwrap()
        };
        let ([rows, inputs], [outputs, _]) = (shape(&a), shape(&b));
        let rank = rows / num_experts;
        let element = |bytes: &[u8], index: usize| bytes[4 * index..][..4].to_vec();
        let (mut new_a, mut new_b) = (Vec::new(), Vec::new());
        for (row, output) in (0..rows).flat_map(|row| (0..outputs).map(move |o| (row, o))) {
            let column = row % rank * num_experts + row / rank;
            new_a.extend(element(&of_b, output * rows + column));
        }
        for (input, column) in (0..inputs).flat_map(|i| (0..rows).map(move |c| (i, c))) {
            let row = column % num_experts * rank + column / num_experts;
            new_b.extend(element(&of_a, row * inputs + input));
        }
        (a["shape"], b["shape"]) = (json!([rows, outputs]), json!([inputs, rows]));
        tensors.insert(name, (a, new_a));
        tensors.insert(other, (b, new_b));
    }
}

/// The class of transformers 4 does not say that its parameters are transposed, so PEFT exchanges
/// these matrices. One of the two is square here, as in the published models.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adapters_of_gpt_oss_may_be_those_of_transformers_4() {
    let model = "gpt_oss-mxfp4";
    let config = EngineConfig { max_model_len: Some(512), ..config(model) };
    let engine = Engine::start(config).await.unwrap();
    let own = adapter(model, "d");
    let copy = TempDir::new().unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(PathBuf::from(&own).join(file), copy.path().join(file)).unwrap();
    }
    rewrite(copy.path(), |tensors| exchange(tensors, 4));
    let mut outputs = Vec::new();
    for (name, path) in [("own", own), ("exchanged", copy.path().to_string_lossy().into_owned())] {
        let lora = engine.load_lora_adapter(name, &path, false).await.unwrap();
        let request = request(&[5, 9, 7, 20, 31], 12, Some(&lora));
        outputs.push(collect(submit(&engine, request).await).await);
    }
    assert_eq!(outputs[0], outputs[1]);
    engine.shutdown().await;
}

/// Copies an adapter, with other names of its tensors.
fn renamed(path: &str, rename: fn(&str) -> String) -> TempDir {
    let copy = TempDir::new().unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(PathBuf::from(path).join(file), copy.path().join(file)).unwrap();
    }
    rewrite(copy.path(), |tensors| {
        let named = std::mem::take(tensors).into_iter();
        *tensors = named.map(|(name, tensor)| (rename(&name), tensor)).collect();
    });
    copy
}

/// A training that saves the state of a model past PEFT leaves PyTorch's modules and the names of
/// adapters in it. Programs other than PEFT leave `peft_type` out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_states_that_were_saved_past_peft_are_read() {
    let engine = Engine::start(config("llama-tied")).await.unwrap();
    let renames: [fn(&str) -> String; 4] = [
        str::to_owned,
        |name| name.replace("base_model.model.", "base_model.model._orig_mod."),
        |name| format!("module.{name}").replace("layers.0.", "layers.0._fsdp_wrapped_module."),
        |name| match name.contains(".lora_") {
            true => name.replace(".weight", ".mine.weight"),
            false => name.replace(".weight", ".modules_to_save.mine.weight"),
        },
    ];
    let mut outputs = Vec::new();
    for (index, rename) in renames.into_iter().enumerate() {
        let copy = renamed(&adapter("llama-tied", "b"), rename);
        let file = copy.path().join("adapter_config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        config.as_object_mut().unwrap().remove("peft_type").unwrap();
        std::fs::write(&file, config.to_string()).unwrap();
        let path = copy.path().to_string_lossy().into_owned();
        let lora = engine.load_lora_adapter(&format!("{index}"), &path, false).await.unwrap();
        let request = request(&[5, 9, 7, 20, 31], 8, Some(&lora));
        outputs.push(collect(submit(&engine, request).await).await);
    }
    assert!(outputs.iter().all(|output| *output == outputs[0]), "{outputs:?}");
    engine.shutdown().await;
}

/// Quantized base weights differ from transformers', but rows do not depend on their neighbours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_over_a_quantized_base_do_not_depend_on_their_batch() {
    let model = "llama-gqa-f16";
    let quantized = |max_num_seqs| EngineConfig {
        quantization: Quantization::Int8,
        max_num_seqs,
        ..config(model)
    };
    let case = Case { adapters: "adapters", model: model.to_owned() };
    let together = run(&case, quantized(IN_FLIGHT)).await;
    let alone = run(&case, quantized(1)).await;
    for ((recorded, one), (_, other)) in together.iter().zip(&alone) {
        assert_eq!(one, other, "adapter {:?}", recorded.adapter);
    }
    assert_ne!(together[0].1.tokens, together[2].1.tokens, "the adapter has no effect");
}
