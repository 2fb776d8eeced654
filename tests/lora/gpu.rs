//! Adapters of experts on a GPU, or on a software device of the same runtime: each row of a batch
//! equals its own model, and has the bytes that it has alone.
#![allow(clippy::print_stderr, reason = "a test that skips says so")]

use playhouse::{EngineConfig, config::Device};
use serde::Deserialize as _;
use serde_json::json;

use super::config;
use super::fidelity::{Case, compare, run};

/// Mixtures with matrices of each expert and of all of them, in both forms of parameters, and with
/// biases.
const MODELS: [&str; 3] = ["qwen3_moe", "granite_moe", "gpt_oss"];

/// Returns the first device beside the CPU. If there is none, it prints the reason and the test
/// passes. With `PLAYHOUSE_TEST_REQUIRE_GPU=1` the test fails instead.
fn setting() -> Option<Device> {
    let found = playhouse_kernels::devices().into_iter().find(|device| device.id != "cpu");
    if found.is_none() {
        let is_required =
            std::env::var("PLAYHOUSE_TEST_REQUIRE_GPU").is_ok_and(|value| value == "1");
        assert!(
            !is_required,
            "PLAYHOUSE_TEST_REQUIRE_GPU=1, but there is no device beside the CPU"
        );
        eprintln!("skipped: there is no device beside the CPU");
    }
    let setting: Result<_, serde_json::Error> = Device::deserialize(json!(found?.id));
    Some(setting.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_a_mixture_equals_its_own_model() {
    let Some(device) = setting() else { return };
    for model in MODELS {
        let case = Case { adapters: "adapters", model: model.to_owned() };
        // The cache of these has no room for their whole context.
        let max_model_len = model.starts_with("gpt_oss").then_some(512);
        let on_gpu =
            |max_num_seqs| EngineConfig { device, max_model_len, max_num_seqs, ..config(model) };
        let together = run(&case, on_gpu(8)).await;
        // A software device is slow: one model alone.
        if model == "granite_moe" {
            let alone = run(&case, on_gpu(1)).await;
            for ((_, one), (_, other)) in together.iter().zip(&alone) {
                assert_eq!(one, other, "{model}: a row depends on its batch");
            }
        }
        compare(&case, together);
    }
}
