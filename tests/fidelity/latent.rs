//! Latent attention: the memory of its KV cache, narrower caches, and narrower weights.

use playhouse::model::Dtype;
use playhouse::{Engine, config::KvCacheDtype};
use playhouse_kernels::KvDtype;

use crate::engine::{check_prefix_hits, config};
use crate::golden::Golden;
use crate::runner::Chunking;
use crate::{CHUNKINGS, check_chunking, folder, runner};

/// Models of each family with latent attention.
const MODELS: [&str; 5] =
    ["deepseek_v2", "deepseek_v2-groups", "deepseek_v3-halves", "minicpm3", "youtu"];

/// Three layers of a latent of 24 elements and a shared key of 8. Values are parts of the latents.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_takes_one_latent_and_one_shared_key_a_layer() {
    for (kv_cache_dtype, token_bytes) in [
        (KvCacheDtype::Auto, 3 * 32 * 4),
        (KvCacheDtype::Bfloat16, 3 * 32 * 2),
        (KvCacheDtype::Int8PerTokenHead, 3 * (32 + 4)),
    ] {
        let mut config = config("deepseek_v3", None);
        config.kv_cache_dtype = kv_cache_dtype;
        config.num_gpu_blocks_override = Some(50);
        let engine = Engine::spawn(config, |_| ()).await.unwrap();
        let bytes = engine.loaded().kv_cache_bytes;
        assert_eq!(bytes, 50 * 16 * token_bytes, "{kv_cache_dtype:?}");
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_hits_on_latents_give_the_same_bytes() {
    for kv_cache_dtype in [KvCacheDtype::Bfloat16, KvCacheDtype::Int8PerTokenHead] {
        check_prefix_hits("deepseek_v3", |config| config.kv_cache_dtype = kv_cache_dtype).await;
    }
}

/// One step size of int8 serves a latent and the shared key together. A router takes other experts
/// where two are nearly equal, so a mixture of random experts differs more than a dense model.
#[test]
fn narrower_caches_of_latents_are_close_and_independent_of_chunking() {
    for (kv_dtype, tolerance) in [(KvDtype::Bf16, 0.03), (KvDtype::Int8, 0.4)] {
        for name in MODELS {
            let folder = folder(name);
            let run = Golden::read(&folder).runs.remove(0);
            let runner = runner(&folder, Dtype::Float32, run.max_model_len).with_kv_dtype(kv_dtype);
            let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
            let whole = runner.answer(&prompts, Chunking::Whole);
            for (prompt, answer) in run.prompts.iter().zip(&whole) {
                let difference = prompt.mean_difference(answer);
                assert!(difference > 0.0, "{name}: {kv_dtype} is not in use");
                assert!(difference < tolerance, "{name}, {kv_dtype}: {difference}");
            }
            check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
        }
    }
}

/// The matrices of heads, experts and 8-bit floats in bfloat16.
#[test]
fn bf16_weights_are_close_and_independent_of_chunking() {
    for name in ["deepseek_v2", "deepseek_v3-float8", "youtu-halves"] {
        let folder = folder(name);
        let run = Golden::read(&folder).runs.remove(0);
        let runner = runner(&folder, Dtype::Bfloat16, None);
        let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
        let whole = runner.answer(&prompts, Chunking::Whole);
        for (prompt, answer) in run.prompts.iter().zip(&whole) {
            let difference = prompt.mean_difference(answer);
            assert!(difference < 0.2, "{name}: mean difference {difference}");
        }
        check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
    }
}
