//! Preemption, prefix hits, and the deaths of workers, schedulers and KV cache managers change no
//! token, whatever the family. There is a model of each kind of layer.

use std::time::Duration;

use playhouse::{
    Engine,
    api::{How, Role},
};

use crate::engine::{
    Output, check_preemption, check_prefix_hits, collect, config, long_prompt, request,
};

/// ALiBi, learned positions, norms after rotation, parallel blocks, mixtures of experts, latent
/// attention, and several passes through the layers.
const WITHOUT_WINDOWS: [&str; 9] = [
    "bloom",
    "gpt2",
    "hunyuan",
    "falcon-groups",
    "qwen3_moe",
    "glm4_moe",
    "deepseek_v2",
    "deepseek_v3-halves",
    "nanbeige",
];

/// Layers with a state alone, beside attention, and side by side with it.
const WITH_STATES: [&str; 14] = [
    "mamba",
    "mamba2-limits",
    "bamba-biases",
    "jamba",
    "granite_hybrid",
    "falcon_h1-norms",
    "nemotron_h",
    "qwen3_next",
    "qwen4_exp",
    "lfm2",
    "lfm2_moe",
    "minimax",
    "recurrent_gemma",
    "zamba2",
];

/// Windows in every other layer, in five layers of six, and in three of four. Sinks beside windows,
/// chunks, layers that read the keys of others, values narrower than keys, pairs of chunks, and
/// several passes through some layers.
const WITH_WINDOWS: [&str; 10] = [
    "gemma2",
    "gemma3",
    "olmo3",
    "gpt_oss",
    "llama4",
    "gemma3n",
    "gemma4",
    "mimo_v2_flash",
    "rnj1",
    "dory",
];

#[tokio::test(flavor = "multi_thread")]
async fn preempted_requests_give_the_same_tokens() {
    for name in WITHOUT_WINDOWS {
        // A request has six blocks.
        check_preemption(name, 17, |_| ()).await;
    }
    // A request that decodes has two blocks in a group with a state, and as many in attention.
    for (name, num_blocks) in [("mamba2", 9), ("bamba-biases", 11), ("falcon_h1", 8)] {
        for is_async in [false, true] {
            check_preemption(name, num_blocks, |c| c.async_scheduling = Some(is_async)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_hits_give_the_same_bytes() {
    for name in WITHOUT_WINDOWS.into_iter().chain(WITH_WINDOWS).chain(WITH_STATES) {
        check_prefix_hits(name, |_| ()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_workers_and_schedulers() {
    for name in WITHOUT_WINDOWS.into_iter().chain(WITH_WINDOWS).chain(WITH_STATES) {
        let (prompt, greedy) = long_prompt(name);
        let engine = Engine::spawn(config(name, None), |_| ()).await.unwrap();
        let mut streams = Vec::new();
        for _ in 0..4 {
            let raw = request(&prompt, greedy.len(), 0.0, 0);
            streams.push(engine.submit(raw).await.unwrap().choices.remove(0));
        }
        // Some tokens have been sent, most have not.
        let first = streams[0].next().await.unwrap();
        for role in [Role::Worker, Role::Scheduler, Role::KvCacheManager] {
            engine.chaos().strike(role, 0, How::Panic).unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut outputs = Vec::new();
        for stream in streams {
            outputs.push(collect(stream).await);
        }
        let mut begun = Output::from(first);
        begun.append(std::mem::take(&mut outputs[0]));
        outputs[0] = begun;
        for output in outputs {
            assert_eq!(output.tokens, greedy, "{name}");
        }
        engine.shutdown().await;
    }
}
