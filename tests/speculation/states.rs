//! Models whose layers keep states: a wrong guess would stay in them. Answers with guesses equal
//! those without, alone and in batches, over chunks, preemptions, prefix hits and deaths.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use playhouse::{
    Engine, EngineConfig,
    api::{
        ChoiceStream, FinishReason, How, OutputFormat, Prompt, RawRequest, Role, SampledToken,
        SamplingParams, SystemConfig, TokenLogprobs,
    },
    config::{
        Device, Dtype, HeadMethod, NgramLookup, SpeculativeConfig, SpeculativeMethod, SuffixConfig,
    },
};
use safetensors::SafeTensors;

use crate::set;

/// Models of the fidelity tests: Mamba 1 and 2, alone and beside attention, gated delta rules,
/// short convolutions, lightning attention, embeddings of n-grams.
const MODELS: [&str; 13] = [
    "falcon_mamba",
    "recurrent_gemma",
    "mamba",
    "mamba2",
    "falcon_h1",
    "jamba",
    "bamba",
    "lfm2",
    "minimax",
    "nemotron_h",
    "qwen3_next",
    "qwen3_5_moe",
    "qwen4_exp",
];
const NUM_REQUESTS: usize = 16;
const MAX_MODEL_LEN: usize = 160;
/// A request with one likely token.
const LIKELY: usize = 1;

/// All that a client gets of one request.
#[derive(Debug, Clone, PartialEq, Default)]
struct Output {
    tokens: Vec<SampledToken>,
    prompt_logprobs: Vec<TokenLogprobs>,
    finish: Option<FinishReason>,
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models").join(name)
}

fn config(name: &str) -> EngineConfig {
    EngineConfig {
        allow_chaos: true,
        device: Device::Cpu,
        dtype: Dtype::Float32,
        max_model_len: Some(MAX_MODEL_LEN),
        max_num_seqs: 8,
        max_num_batched_tokens: 40,
        tokenizer: Some(fixture("llama-tied")),
        ..EngineConfig::new(fixture(name))
    }
}

/// Returns the methods that need no head. The draft model has random weights, too.
fn methods() -> [SpeculativeConfig; 3] {
    let config = SpeculativeConfig::new;
    [
        config(SpeculativeMethod::Ngram(NgramLookup { min: 1, max: 4 }), 5),
        config(SpeculativeMethod::Suffix(SuffixConfig::default()), 8),
        config(SpeculativeMethod::DraftModel { model: fixture("llama-tied") }, 3),
    ]
}

/// Returns one of eight kinds of request. Prompts begin alike, so that they hit each other, and
/// repeat themselves. Of few allowed tokens, guesses are often right.
fn request(index: usize) -> RawRequest {
    let base = SamplingParams {
        temperature: [0.0, 0.9][index / 8 % 2],
        seed: Some(index as u64),
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let params = match index % 8 {
        0 => base,
        LIKELY => SamplingParams { logit_bias: vec![(77, 90.0)], logprobs: Some(1), ..base },
        2 => SamplingParams {
            presence_penalty: 0.4,
            frequency_penalty: 0.3,
            repetition_penalty: 1.1,
            ..base
        },
        3 => SamplingParams { logprobs: Some(4), prompt_logprobs: Some(1), ..base },
        4 => {
            SamplingParams { allowed_token_ids: Some(vec![40, 45, 410]), logprobs: Some(0), ..base }
        }
        5 => SamplingParams {
            logit_bias: vec![(350, 9.0), (351, 9.0)],
            stop_token_ids: vec![351],
            min_tokens: 12,
            ..base
        },
        6 => {
            let format = OutputFormat::Regex("(again and )+[a-z]{9}".to_owned());
            SamplingParams { structured_output: Some(Arc::new(format.into())), ..base }
        }
        _ => SamplingParams { top_k: 3, top_p: 0.8, logprobs: Some(1), ..base },
    };
    let len = 20 + index * 5;
    let prompt = (0..len).map(|i| 5 + (i % 9 * 37 + i / 48) as u32 % 400).collect();
    let max_tokens = Some(24 + index as u32);
    RawRequest { params, max_tokens, ..RawRequest::new(Prompt::Tokens(prompt)) }
}

async fn read(mut stream: ChoiceStream) -> Output {
    let mut output = Output::default();
    while let Some(delta) = stream.next().await {
        output.tokens.extend(delta.tokens);
        output.prompt_logprobs.extend(delta.prompt_logprobs);
        output.finish = delta.finish;
    }
    output
}

async fn submit(engine: &Engine, index: usize) -> ChoiceStream {
    engine.submit(request(index)).await.unwrap().choices.remove(0)
}

/// Returns the outputs of requests that are all sent at once.
async fn together(engine: &Engine) -> Vec<Output> {
    let (mut streams, mut outputs) = (Vec::new(), Vec::new());
    for index in 0..NUM_REQUESTS {
        streams.push(submit(engine, index).await);
    }
    for stream in streams {
        outputs.push(read(stream).await);
    }
    outputs
}

/// Returns the outputs of requests that run alone.
async fn alone(engine: &Engine) -> Vec<Output> {
    let mut outputs = Vec::new();
    for index in 0..NUM_REQUESTS {
        outputs.push(read(submit(engine, index).await).await);
    }
    outputs
}

async fn start(config: EngineConfig) -> Engine {
    let impatient = |config: &mut SystemConfig| {
        config.tick = Duration::from_millis(20);
        config.call_timeout = Duration::from_millis(500);
        config.hang_timeout = Duration::from_millis(500);
    };
    Engine::spawn_with(config, |_| (), impatient).await.unwrap()
}

/// Returns the number of blocks that hold one request of the largest length in all groups.
fn few_blocks(engine: &Engine) -> usize {
    let spec = &engine.loaded().info.kv_spec;
    1 + spec.groups.len() * (MAX_MODEL_LEN.div_ceil(spec.block_size) + 4)
}

fn same(name: &str, what: &str, found: &[Output], expected: &[Output]) {
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "{name}, {what}: request {index}");
    }
}

/// Returns the outputs without guesses, and the number of blocks that make requests preempt each
/// other.
async fn without_guesses(name: &str) -> (Vec<Output>, usize) {
    let mut config = config(name);
    set(&mut config, None);
    let engine = start(config).await;
    let (expected, num_blocks) = (alone(&engine).await, few_blocks(&engine));
    same(name, "together", &together(&engine).await, &expected);
    engine.shutdown().await;
    (expected, num_blocks)
}

/// Checks a model with one method: requests alone, then together with hits on their prompts, then
/// with a small cache, in which they preempt each other.
async fn check(
    name: &str,
    speculative: &SpeculativeConfig,
    is_async: bool,
    (expected, num_blocks): &(Vec<Output>, usize),
) {
    let mut with = config(name);
    with.async_scheduling = Some(is_async);
    set(&mut with, Some(speculative.clone()));
    let what = format!("{speculative:?}, planned ahead: {is_async}");
    let engine = start(with.clone()).await;
    // The first steps with guesses are not paced. Of one likely token, all guesses are right.
    same(name, &what, &[read(submit(&engine, LIKELY).await).await], &expected[LIKELY..=LIKELY]);
    let totals = engine.look().await.totals;
    let (steps, tokens) = (totals.steps, totals.output_tokens);
    assert!(4 * steps < 3 * tokens, "{name}, {what}: {steps} steps for {tokens} tokens");
    same(name, &format!("{what}, alone"), &alone(&engine).await, expected);
    same(name, &format!("{what}, together"), &together(&engine).await, expected);
    engine.shutdown().await;
    with.num_gpu_blocks_override = Some(*num_blocks);
    with.scheduler_reserve_full_isl = false;
    let engine = start(with).await;
    let mut rounds = 0;
    let totals = loop {
        same(name, &format!("{what}, few blocks"), &together(&engine).await, expected);
        let totals = engine.look().await.totals;
        rounds += 1;
        // On a busy machine, requests may end before the next ones have come.
        if totals.preemptions > 0 || rounds == 20 {
            break totals;
        }
    };
    assert!(totals.preemptions > 0, "{name}, {what}: {num_blocks} blocks are too many");
    assert!(totals.prefix_cache_hits > 0, "{name}, {what}: no prompt was hit");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_with_states_have_the_same_bytes_with_each_method() {
    for name in MODELS {
        let reference = without_guesses(name).await;
        for (speculative, is_async) in methods().iter().zip([false, true, false]) {
            let is_model = matches!(speculative.method, SpeculativeMethod::DraftModel { .. });
            let reads_all = !name.contains("mamba") && name != "recurrent_gemma";
            if is_model && !reads_all {
                // No layer reads all tokens, whose blocks a draft model would share.
                continue;
            }
            check(name, speculative, is_async, &reference).await;
        }
    }
}

/// Actors die while requests with guesses run. Requests go on from the last state that was kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_without_guesses_survive_the_death_of_any_actor() {
    let [ngram, suffix, _] = methods();
    for (name, method) in [("falcon_h1", ngram), ("qwen3_next", suffix)] {
        let (expected, num_blocks) = without_guesses(name).await;
        let mut with = config(name);
        with.async_scheduling = Some(true);
        with.num_gpu_blocks_override = Some(2 * num_blocks);
        set(&mut with, Some(method));
        let engine = start(with).await;
        let roles = [Role::Worker, Role::Scheduler, Role::KvCacheManager, Role::Ledger];
        let mut num_deaths = 0;
        for (turn, role) in roles.into_iter().cycle().take(12).enumerate() {
            let how = [How::Panic, How::Kill][turn / 4 % 2];
            let mut streams = Vec::new();
            for index in 0..NUM_REQUESTS {
                streams.push(submit(&engine, index).await);
            }
            tokio::time::sleep(Duration::from_millis(5 + 3 * turn as u64)).await;
            let is_busy = engine.open_requests() > 0;
            let is_struck = engine.chaos().strike(role, 0, how).is_ok();
            num_deaths += u32::from(is_struck && is_busy);
            let mut found = Vec::new();
            for stream in streams {
                found.push(read(stream).await);
            }
            same(name, &format!("{role:?} died"), &found, &expected);
        }
        assert!(num_deaths >= 6, "{num_deaths} deaths while requests ran");
        engine.shutdown().await;
    }
}

/// Returns the folder of a head of the fidelity tests.
fn head(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/heads").join(name)
}

/// Returns multi-token prediction with the head in `model`, or in the model's own folder.
fn mtp(model: Option<PathBuf>, num_speculative_tokens: usize) -> SpeculativeConfig {
    let method = SpeculativeMethod::Head { method: HeadMethod::Mtp, model };
    SpeculativeConfig::new(method, num_speculative_tokens)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modules_for_several_tokens_guess_in_models_with_states() {
    for name in ["qwen3_next", "qwen3_5"] {
        let reference = without_guesses(name).await;
        for (num_guesses, is_async) in [(1, true), (3, false)] {
            let speculative = mtp(Some(head(&format!("mtp-{name}"))), num_guesses);
            check(name, &speculative, is_async, &reference).await;
        }
    }
}

/// Published checkpoints have the module in the model's own folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_in_the_models_own_folder_is_found() {
    let folder = tempfile::TempDir::new().unwrap();
    let read = |folder: PathBuf| fs::read(folder.join("model.safetensors")).unwrap();
    let files = [read(fixture("qwen3_next")), read(head("mtp-qwen3_next"))];
    let tensors = files.iter().flat_map(|file| SafeTensors::deserialize(file).unwrap().tensors());
    let file = safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), file).unwrap();
    let config_file = fixture("qwen3_next").join("config.json");
    fs::copy(config_file, folder.path().join("config.json")).unwrap();
    let mut with = EngineConfig { model: folder.path().to_owned(), ..config("qwen3_next") };
    let (expected, _) = without_guesses("qwen3_next").await;
    set(&mut with, Some(mtp(None, 2)));
    let engine = start(with).await;
    same("qwen3_next", "its own module", &together(&engine).await, &expected);
    engine.shutdown().await;
    // A folder without the module is named with the tensor.
    let mut without = config("qwen3_next");
    set(&mut without, Some(mtp(None, 2)));
    let error = Engine::spawn(without, |_| ()).await.err().unwrap().to_string();
    assert!(error.contains("mtp.") && error.contains("missing"), "{error}");
}
