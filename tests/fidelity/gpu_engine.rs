//! Engines on a GPU, or on a software device of the same runtime, behave as they do on a CPU.

use playhouse::{
    Engine, EngineConfig,
    api::{How, Prompt, RawRequest, Role},
    config::{Device, HeadMethod, SpeculativeConfig, SpeculativeMethod},
};

use crate::engine::{
    Output, bits, check, check_preemption, check_prefix_hits, collect, config, long_prompt,
    request, run,
};
use crate::gpu::{gpu, setting};

const NAME: &str = "qwen3-layer-types";

/// A mixture of experts, latent attention, and states beside attention.
const OTHERS: [&str; 4] = ["qwen3_moe", "deepseek_v2", "falcon_h1", "qwen3_next"];

/// Strikes in the middle of a stream, one after another.
const STRIKES: usize = 3;

fn on_gpu(config: &mut EngineConfig) {
    config.device = setting().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_do_not_meet() {
    if gpu().is_none() {
        return;
    }
    for name in [NAME].into_iter().chain(OTHERS) {
        check(name, on_gpu).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_and_preemption_change_nothing() {
    if gpu().is_none() {
        return;
    }
    // A request of the second has six blocks.
    for (name, num_blocks) in [(NAME, 49), ("deepseek_v2", 20)] {
        check_preemption(name, num_blocks, |config| {
            on_gpu(config);
            config.max_num_batched_tokens = 64;
            config.max_num_seqs = 64;
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_are_shared() {
    if gpu().is_none() {
        return;
    }
    for name in [NAME, "deepseek_v2"] {
        check_prefix_hits(name, on_gpu).await;
    }
}

/// The device has enough buffers for the default size of the KV cache.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_settings_fit_the_device() {
    if gpu().is_none() {
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
    let on_cpu =
        EngineConfig { device: Device::Cpu, allow_chaos: true, ..EngineConfig::new(folder) };
    let mut config = on_cpu.clone();
    on_gpu(&mut config);
    // The model is sure of this answer. That matters because a GPU rounds bf16 in other places.
    let question = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n";
    let prompt = Prompt::Text(question.to_owned());
    let requests = || vec![RawRequest { prompt: prompt.clone(), ..request(&[], 8, 0.0, 0) }];
    let (on_cpu, on_gpu) = (run(on_cpu, requests()).await.0, run(config, requests()).await.0);
    assert_eq!(on_gpu[0].tokens, on_cpu[0].tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_dies_and_streams_go_on() {
    if gpu().is_none() {
        return;
    }
    for name in [NAME].into_iter().chain(OTHERS) {
        check_deaths(name).await;
    }
}

/// Strikes a worker in the middle of streams, in every way.
async fn check_deaths(name: &str) {
    let (prompt, _) = long_prompt(name);
    let mut config = config(name, None);
    on_gpu(&mut config);
    let requests = || (0..4).map(|seed| request(&prompt, 24, 0.9, seed)).collect::<Vec<_>>();
    let expected = run(config.clone(), requests()).await.0;
    for how in How::ALL {
        let engine = Engine::spawn(config.clone(), |_| ()).await.unwrap();
        let mut streams = Vec::new();
        for request in requests() {
            streams.push(engine.submit(request).await.unwrap().choices.remove(0));
        }
        let mut first = streams.remove(0);
        let mut output = Output::default();
        let mut struck = 0;
        for _ in 0..STRIKES {
            output.append(first.next().await.unwrap().into());
            // A worker that is dead already cannot be struck.
            struck += usize::from(engine.chaos().strike(Role::Worker, 0, how).is_ok());
        }
        assert!(struck > 0, "{name} {how:?}");
        output.append(collect(first).await);
        let mut outputs = vec![output];
        for stream in streams {
            outputs.push(collect(stream).await);
        }
        for (output, expected) in outputs.iter().zip(&expected) {
            assert_eq!(bits(output), bits(expected), "{name} {how:?}");
        }
        engine.shutdown().await;
    }
}

/// The head was trained for the model, so some of its guesses are right: the steps are fewer than
/// the tokens.
#[tokio::test(flavor = "multi_thread")]
async fn guesses_of_a_head_change_no_token() {
    if gpu().is_none() {
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
    let question = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n";
    let prompt = Prompt::Text(question.to_owned());
    let method = SpeculativeMethod::Head {
        method: HeadMethod::Eagle,
        model: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model/eagle").into()),
    };
    let mut found = Vec::new();
    for speculative_config in [None, Some(SpeculativeConfig::new(method, 3))] {
        let mut config = EngineConfig {
            num_gpu_blocks_override: Some(64),
            speculative_config,
            ..EngineConfig::new(folder)
        };
        on_gpu(&mut config);
        let engine = Engine::spawn(config, |_| ()).await.unwrap();
        let request = RawRequest { prompt: prompt.clone(), ..request(&[], 10, 0.0, 0) };
        let stream = engine.submit(request).await.unwrap().choices.remove(0);
        let output = collect(stream).await;
        found.push((output.tokens, engine.look().await.totals.steps));
        engine.shutdown().await;
    }
    assert_eq!(found[1].0, found[0].0);
    assert!(found[1].1 < found[0].1, "steps: {} and {}", found[1].1, found[0].1);
}
