//! Linear layers quantized at load: near transformers' float32 answers, and as independent of
//! batch, chunks, preemption and the death of a worker as any other format.

use playhouse::{
    Engine, EngineConfig,
    actors::{fault::How, shell::Role},
    config::Quantization,
    model::{Dtype, LoadOptions, load_model},
};
use playhouse_kernels::QuantizationScheme;

use crate::{
    CHUNKINGS, Chunking, check_chunking,
    engine::{Output, collect, long_prompt, request, run},
    folder,
    golden::Golden,
    runner::Runner,
};

/// Each with the largest mean difference of a log-probability from transformers' in float32. The
/// models are tiny, so single weights count for much.
const SCHEMES: [(QuantizationScheme, f64); 3] = [
    (QuantizationScheme::Int8, 0.15),
    (QuantizationScheme::Int4 { group_size: 32 }, 1.2),
    (QuantizationScheme::Int4 { group_size: 128 }, 1.2),
];

const ENGINE_SCHEMES: [Quantization; 2] = [Quantization::Int8, Quantization::Int4];

#[test]
fn quantized_models_are_close_and_independent_of_chunking() {
    for name in ["llama-tied", "llama-biases-sharded", "qwen2-window-mix", "qwen3-layer-types"] {
        let folder = folder(name);
        let golden = Golden::read(&folder).runs.remove(0);
        let prompts: Vec<_> = golden.prompts.iter().map(|prompt| prompt.ids()).collect();
        for (scheme, difference_max) in SCHEMES {
            let options = LoadOptions {
                dtype: Dtype::F32,
                quantization: Some(scheme),
                max_model_len: None,
                ..LoadOptions::default()
            };
            let model = load_model(&folder, &options, &mut |_| {}).unwrap();
            let runner = Runner::new(model, &options.device);
            let whole = runner.answer(&prompts, Chunking::Whole);
            for (prompt, answer) in golden.prompts.iter().zip(&whole) {
                let difference = prompt.mean_difference(answer);
                // Something was quantized, and not too much.
                let range = 1e-4..difference_max;
                assert!(range.contains(&difference), "{name} in {scheme:?}: {difference}");
            }
            check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
        }
    }
}

fn config(name: &str, quantization: Quantization) -> EngineConfig {
    EngineConfig {
        device: playhouse::config::Device::Cpu,
        quantization,
        ..EngineConfig::new(folder(name))
    }
}

/// Tokens and the bits of their log-probabilities.
fn bits(outputs: &[Output]) -> Vec<(&[u32], Vec<u32>)> {
    let one = |output: &Output| output.logprobs.iter().map(|p| p.to_bits()).collect();
    outputs.iter().map(|output| (&output.tokens[..], one(output))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn quantized_tokens_do_not_depend_on_company_chunks_or_preemption() {
    let name = "qwen3-layer-types";
    let (prompt, _) = long_prompt(name);
    let blocks = prompt.len().div_ceil(16);
    for quantization in ENGINE_SCHEMES {
        let sampled = |seed| request(&prompt, 24, 0.9, seed);
        let mut alone = Vec::new();
        for seed in 0..8 {
            alone.extend(run(config(name, quantization), vec![sampled(seed)]).await.0);
        }
        let together: [&dyn Fn(&mut EngineConfig); 3] =
            [&|_| (), &|config| config.max_num_batched_tokens = 16, &|config| {
                config.num_gpu_blocks_override = Some(3 * blocks + 1);
                config.enable_prefix_caching = false;
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
        // Some tokens are out, most are not.
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
