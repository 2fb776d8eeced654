//! Linear layers that are quantized at load. Their answers are close to transformers' in float32.
//! As in any other format, they do not depend on batch, chunks, preemption, or the death of a
//! worker.
//!
//! Ready-made checkpoints in float32 give the answers of the model with their dequantized weights.

use std::{collections::BTreeMap, fs, path::Path};

use playhouse::{
    Engine, EngineConfig,
    api::{How, Role},
    config::{self, Quantization},
    model::{ActivationQuantization, Dtype, LoadOptions, ModelConfig, load_model},
    weights::Checkpoint,
};
use playhouse_kernels::{ActivationDtype, QuantizationScheme, WeightDtype};
use safetensors::{SafeTensors, tensor::TensorView};
use tempfile::TempDir;

use crate::{
    CHUNKINGS, Chunking, check_chunking,
    engine::{Output, collect, long_prompt, request, run, shrink},
    folder,
    golden::Golden,
    runner::{Runner, log_softmax},
};

/// Each scheme with the largest accepted mean difference between a log-probability and
/// transformers' in float32. The models are tiny, so single weights count for much.
const SCHEMES: [(QuantizationScheme, f64); 3] = [
    (QuantizationScheme::Int8, 0.15),
    (QuantizationScheme::Int4 { group_size: 32 }, 1.2),
    (QuantizationScheme::Int4 { group_size: 128 }, 1.2),
];

/// The dtype and the setting, each with the format that activations then have.
const ACTIVATIONS: [(Dtype, ActivationQuantization, ActivationDtype); 3] = [
    (Dtype::Bfloat16, ActivationQuantization::Auto, ActivationDtype::Int8),
    (Dtype::Bfloat16, ActivationQuantization::None, ActivationDtype::Bf16),
    (Dtype::Float32, ActivationQuantization::Auto, ActivationDtype::F32),
];

/// Each scheme with a setting for activations.
const ENGINE_SCHEMES: [(Quantization, config::ActivationQuantization); 3] = [
    (Quantization::Int8, config::ActivationQuantization::Auto),
    (Quantization::Int4, config::ActivationQuantization::Int8),
    (Quantization::Int4, config::ActivationQuantization::None),
];

#[test]
fn quantized_models_are_close_and_independent_of_chunking() {
    for name in ["llama-tied", "llama-biases-sharded", "qwen2-window-mix", "qwen3-layer-types"] {
        let folder = folder(name);
        let golden = Golden::read(&folder).runs.remove(0);
        let prompts: Vec<_> = golden.prompts.iter().map(|prompt| prompt.ids()).collect();
        for (scheme, difference_max) in SCHEMES {
            for (dtype, activation_quantization, activations) in ACTIVATIONS {
                let options = LoadOptions {
                    dtype,
                    quantization: Some(scheme),
                    activation_quantization,
                    ..LoadOptions::default()
                };
                let model = load_model(&folder, &options, &mut |_| {}).unwrap();
                assert_eq!(model.quantized_weights.as_ref().unwrap().activations, activations);
                let runner = Runner::new(model, &options.device);
                let whole = runner.answer(&prompts, Chunking::Whole);
                for (prompt, answer) in golden.prompts.iter().zip(&whole) {
                    let difference = prompt.mean_difference(answer);
                    // Quantization had an effect, and no large one.
                    let range = 1e-4..difference_max;
                    let what = format!("{name} in {scheme:?}, activations {}", activations.name());
                    assert!(range.contains(&difference), "{what}: {difference}");
                }
                check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
            }
        }
    }
}

/// Returns the model of `folder` with its weights dequantized to float32.
fn dequantized(folder: &Path) -> TempDir {
    let quantization = ModelConfig::of_model(folder, None).unwrap().quantization;
    let checkpoint = Checkpoint::open(folder).unwrap().quantized(quantization.clone());
    let file = fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let mut tensors: BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, tensor) in file.iter() {
        let (module, part) = name.rsplit_once('.').unwrap();
        let shape = tensor.shape();
        let matrix = match (part, tensor.dtype()) {
            // Packed along the outputs (AWQ), or along the inputs (GPTQ).
            ("qweight", _) if file.tensor(&format!("{module}.g_idx")).is_err() => {
                [8 * shape[1], shape[0]]
            }
            ("qweight", _) => [shape[1], 8 * shape[0]],
            ("weight", safetensors::Dtype::I8) => [shape[0], shape[1]],
            ("weight" | "bias", dtype) => {
                tensors.insert(name.to_owned(), (dtype, shape.to_vec(), tensor.data().to_vec()));
                continue;
            }
            _ => continue,
        };
        let stored = checkpoint.matrix(module, matrix).unwrap();
        let values = stored.values(WeightDtype::F32).view().to_f32();
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let dense = (safetensors::Dtype::F32, matrix.to_vec(), bytes);
        tensors.insert(format!("{module}.weight"), dense);
    }
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let dense = TempDir::new().unwrap();
    let file = safetensors::serialize(views, None).unwrap();
    fs::write(dense.path().join("model.safetensors"), file).unwrap();
    let config = fs::read(folder.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    config.as_object_mut().unwrap().remove("quantization_config").unwrap();
    fs::write(dense.path().join("config.json"), config.to_string()).unwrap();
    dense
}

/// Returns the largest difference between two models' log-probabilities: of any token, after any of
/// the prompt's tokens.
fn largest_difference(ids: &[u32], [first, second]: [(&Path, ActivationQuantization); 2]) -> f64 {
    let rows = |(model, activation_quantization): (&Path, ActivationQuantization)| {
        // An explicit float32 never quantizes activations.
        let int8 = activation_quantization == ActivationQuantization::Int8;
        let dtype = if int8 { Dtype::Bfloat16 } else { Dtype::Float32 };
        let options = LoadOptions { dtype, activation_quantization, ..LoadOptions::default() };
        let model = load_model(model, &options, &mut |_| {}).unwrap();
        let runner = Runner::new(model, &options.device);
        let answer = runner.answer(&[ids], Chunking::Whole).remove(0);
        answer.prompt_rows.iter().flat_map(|row| log_softmax(row)).collect::<Vec<f64>>()
    };
    let pairs = rows(first).into_iter().zip(rows(second));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Ready-made checkpoints of each kind, with zero points and biases. Without any setting, float32
/// gives the answers of the dequantized weights. The differences that `activation_quantization`
/// makes are much larger.
#[test]
fn float32_of_a_quantized_checkpoint_is_that_of_its_floats() {
    let ids: Vec<u32> = (0..48).map(|i| i * 37 % 29 + 3).collect();
    for name in ["gptq", "awq", "compressed-tensors"] {
        let quantized =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/fixtures").join(name);
        let dense = dequantized(&quantized);
        let auto = ActivationQuantization::Auto;
        let both = [(&*quantized, auto), (dense.path(), auto)];
        let difference = largest_difference(&ids, both);
        assert!(difference < 1e-4, "{name}: {difference}");
        let int8 = [(&*quantized, ActivationQuantization::Int8), (dense.path(), auto)];
        let difference = largest_difference(&ids, int8);
        assert!(difference > 1e-3, "{name}: {difference} shows nothing");
    }
}

/// The default is 8 bits with bfloat16 and none with float32. Invalid combinations are rejected.
#[test]
fn auto_never_rounds_what_float32_asks_for() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/fixtures");
    for name in ["gptq", "awq", "compressed-tensors", "llama.gguf"] {
        let model = fixtures.join(name);
        for (dtype, expected) in
            [(Dtype::Bfloat16, ActivationDtype::Int8), (Dtype::Float32, ActivationDtype::F32)]
        {
            let options = LoadOptions { dtype, ..LoadOptions::default() };
            let model = load_model(&model, &options, &mut |_| {}).unwrap();
            assert_eq!(model.quantized_weights.as_ref().unwrap().activations, expected, "{name}");
        }
        let activation_quantization = ActivationQuantization::Int8;
        let dtype = Dtype::Float32;
        let options = LoadOptions { dtype, activation_quantization, ..LoadOptions::default() };
        let refused = load_model(&model, &options, &mut |_| {}).err().unwrap();
        assert!(refused.to_string().contains("float32 rounds nothing"), "{refused}");
    }
    let activation_quantization = ActivationQuantization::Int8;
    let options = LoadOptions { activation_quantization, ..LoadOptions::default() };
    let refused = load_model(&folder("llama-tied"), &options, &mut |_| {}).err().unwrap();
    assert!(refused.to_string().contains("no weights are quantized"), "{refused}");
}

type Scheme = (Quantization, config::ActivationQuantization);

fn config(name: &str, (quantization, activation_quantization): Scheme) -> EngineConfig {
    EngineConfig {
        allow_chaos: true,
        device: config::Device::Cpu,
        quantization,
        activation_quantization,
        ..EngineConfig::new(folder(name))
    }
}

/// Returns the tokens and the bits of their log-probabilities.
fn bits(outputs: &[Output]) -> Vec<(&[u32], Vec<u32>)> {
    let one = |output: &Output| output.logprobs.iter().map(|p| p.to_bits()).collect();
    outputs.iter().map(|output| (&output.tokens[..], one(output))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn quantized_tokens_do_not_depend_on_company_chunks_or_preemption() {
    let name = "qwen3-layer-types";
    let (prompt, _) = long_prompt(name);
    for quantization in ENGINE_SCHEMES {
        let sampled = |seed| request(&prompt, 24, 0.9, seed);
        let mut alone = Vec::new();
        for seed in 0..8 {
            alone.extend(run(config(name, quantization), vec![sampled(seed)]).await.0);
        }
        let together: [&dyn Fn(&mut EngineConfig); 3] =
            [&|_| (), &|config| config.max_num_batched_tokens = 16, &|config| {
                shrink(config, 49);
            }];
        for change in together {
            let mut config = config(name, quantization);
            change(&mut config);
            config.max_num_seqs = 8;
            let (outputs, _) = run(config, (0..8).map(sampled).collect()).await;
            assert_eq!(bits(&outputs), bits(&alone), "{quantization:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quantized_streams_survive_their_worker() {
    let name = "qwen3-layer-types";
    let (prompt, _) = long_prompt(name);
    for quantization in ENGINE_SCHEMES {
        let sampled = |seed| request(&prompt, 48, 0.9, seed);
        let (expected, _) = run(config(name, quantization), (0..4).map(sampled).collect()).await;
        let engine = Engine::spawn(config(name, quantization), |_| ()).await.unwrap();
        let mut streams = Vec::new();
        for seed in 0..4 {
            streams.push(engine.submit(sampled(seed)).await.unwrap().choices.remove(0));
        }
        // Some tokens have been sent, most have not.
        let first = streams[0].next().await.unwrap();
        for how in [How::Kill, How::Panic] {
            engine.chaos().strike(Role::Worker, 0, how).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
        let mut outputs = Vec::new();
        for stream in streams {
            outputs.push(collect(stream).await);
        }
        let mut begun = Output::from(first);
        begun.append(std::mem::take(&mut outputs[0]));
        outputs[0] = begun;
        assert_eq!(bits(&outputs), bits(&expected), "{quantization:?}");
        let workers = engine.actors().into_iter().filter(|actor| actor.role == Role::Worker);
        assert!(workers.map(|actor| actor.restarts).sum::<u64>() > 0, "no worker was replaced");
        engine.shutdown().await;
    }
}
