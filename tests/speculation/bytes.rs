//! Outputs of mixed requests, with and without guesses.

use std::{path::PathBuf, sync::Arc, time::Duration};

use playhouse::{
    Engine, EngineConfig,
    api::{
        ChoiceStream, FinishReason, How, OutputFormat, Prompt, RawRequest, Role, SampledToken,
        SamplingParams, TokenLogprobs,
    },
    config::{SpeculativeConfig, SpeculativeMethod},
};
use tokio::task::JoinSet;

use crate::{
    draft_model, heads, methods, set,
    workload::{self, BusyEngine},
};

const NUM_REQUESTS: usize = 240;

/// All that a client gets of one choice.
#[derive(Debug, Clone, PartialEq, Default)]
struct Output {
    text: String,
    tokens: Vec<SampledToken>,
    prompt_logprobs: Vec<TokenLogprobs>,
    finish: Option<FinishReason>,
}

const SCHEMA: &str = r#"{"type": "object", "properties": {
    "customer_name": {"type": "string", "maxLength": 8}, "order_number": {"type": "integer"},
    "is_delivered": {"type": "boolean"}},
    "required": ["customer_name", "order_number", "is_delivered"], "additionalProperties": false}"#;

fn format(index: usize) -> OutputFormat {
    match index % 3 {
        0 => OutputFormat::JsonSchema(SCHEMA.to_owned()),
        1 => OutputFormat::Regex("(the same words again, ){3}[a-z]{4,9}".to_owned()),
        _ => OutputFormat::Choice(vec![
            "a long choice of many words".to_owned(),
            "a long choice of other words".to_owned(),
        ]),
    }
}

/// Returns one of eight kinds of request, on text with or without repetitions.
fn request(index: usize) -> RawRequest {
    let base = SamplingParams {
        temperature: [0.0, 0.8][index / 8 % 2],
        seed: Some(index as u64),
        ..SamplingParams::default()
    };
    let params = match index % 8 {
        0 => base,
        1 => SamplingParams { top_k: 20, top_p: 0.9, min_p: 0.02, ..base },
        2 => SamplingParams {
            presence_penalty: 0.4,
            frequency_penalty: 0.3,
            repetition_penalty: 1.1,
            ..base
        },
        3 => SamplingParams { logprobs: Some(4), prompt_logprobs: Some(1), ..base },
        4 => SamplingParams { n: 2, logprobs: Some(0), temperature: 0.7, ..base },
        5 => SamplingParams {
            logit_bias: vec![(350, 1.5), (400, -8.0)],
            bad_words: vec![vec![310], vec![320, 330]],
            stop: vec!["e t".to_owned()],
            min_tokens: 6,
            ..base
        },
        // Of few tokens, guesses are often right, also those of a head with random weights.
        6 if index / 8 % 4 < 2 => SamplingParams {
            allowed_token_ids: Some(vec![400, 405, 410]),
            logit_bias: vec![(405, 60.0)],
            ..base
        },
        6 => SamplingParams { ignore_eos: true, stop_token_ids: vec![301, 317, 333], ..base },
        _ => SamplingParams { structured_output: Some(Arc::new(format(index / 8).into())), ..base },
    };
    let text = match index / 16 % 2 {
        0 => "The quick fox saw the lazy dog. The quick fox saw the lazy dog. The quick".to_owned(),
        _ => format!("Question {index}: what is a good name for a boat?"),
    };
    let prompt = Prompt::Text(text);
    RawRequest { params, max_tokens: Some(24 + (index % 40) as u32), ..RawRequest::new(prompt) }
}

async fn read(mut stream: ChoiceStream) -> Output {
    let mut output = Output::default();
    while let Some(delta) = stream.next().await {
        output.text.push_str(&delta.text);
        output.tokens.extend(delta.tokens);
        output.prompt_logprobs.extend(delta.prompt_logprobs);
        output.finish = delta.finish;
    }
    output
}

/// Returns the outputs of all requests, of which many run at a time.
async fn outputs(engine: &Engine) -> Vec<Vec<Output>> {
    let mut tasks = JoinSet::new();
    for index in 0..NUM_REQUESTS {
        let engine = engine.clone();
        tasks.spawn(async move {
            let submission = engine.submit(request(index)).await.unwrap();
            let mut outputs = Vec::new();
            for choice in submission.choices {
                outputs.push(read(choice).await);
            }
            (index, outputs)
        });
    }
    let mut outputs = tasks.join_all().await;
    outputs.sort_by_key(|(index, _)| *index);
    outputs.into_iter().map(|(_, outputs)| outputs).collect()
}

fn config() -> EngineConfig {
    EngineConfig {
        max_model_len: Some(512),
        max_num_seqs: 24,
        max_num_batched_tokens: 160,
        num_gpu_blocks_override: Some(110),
        ..EngineConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_requests_have_the_same_bytes_with_each_method() {
    let mut without = config();
    set(&mut without, None);
    let engine = Engine::spawn(without, |_| ()).await.unwrap();
    let expected = outputs(&engine).await;
    engine.shutdown().await;
    for (method, is_async) in methods().into_iter().zip([false, true, true].into_iter().cycle()) {
        let mut with = config();
        set(&mut with, Some(method.clone()));
        with.async_scheduling = Some(is_async);
        let engine = Engine::spawn(with, |_| ()).await.unwrap();
        let found = outputs(&engine).await;
        engine.shutdown().await;
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "{method:?}: request {index}, {:?}", request(index));
        }
    }
}

/// Returns the number of steps of one request, and its number of tokens.
async fn steps(change: impl FnOnce(&mut EngineConfig), request: RawRequest) -> (u64, u64) {
    let mut config = EngineConfig { num_gpu_blocks_override: Some(300), ..EngineConfig::default() };
    change(&mut config);
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    for choice in engine.submit(request).await.unwrap().choices {
        read(choice).await;
    }
    let totals = engine.look().await.totals;
    engine.shutdown().await;
    (totals.steps, totals.output_tokens)
}

/// Returns a greedy request.
fn greedy(prompt: &str, ignore_eos: bool) -> RawRequest {
    let params = SamplingParams { temperature: 0.0, ignore_eos, ..SamplingParams::default() };
    let prompt = Prompt::Text(prompt.to_owned());
    RawRequest { params, max_tokens: Some(60), ..RawRequest::new(prompt) }
}

/// Checks that at most this share of the tokens needed a step. The first steps with guesses are not
/// paced, so their number does not depend on the machine.
async fn check_steps(method: SpeculativeConfig, request: RawRequest, share: f64) {
    let name = format!("{method:?}");
    let (steps, tokens) = steps(|config| set(config, Some(method)), request).await;
    assert!(steps as f64 <= share * tokens as f64, "{name}: {steps} steps for {tokens} tokens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_guesses_save_steps() {
    let [ngram, suffix, draft, eagle, eagle3, speculator] = methods();
    let repeated = greedy("tick tock tick tock tick tock tick tock tick tock", true);
    check_steps(ngram, repeated.clone(), 0.4).await;
    check_steps(suffix, repeated, 0.4).await;
    let question = "<|im_start|>user\nTell me: Where are the Lantern Islands?<|im_end|>\n\
                    <|im_start|>assistant\n";
    check_steps(draft.clone(), greedy(question, false), 0.6).await;
    check_steps(eagle, greedy(question, false), 0.6).await;
    // Heads with random weights are right where one token is allowed.
    let one = SamplingParams {
        temperature: 0.0,
        ignore_eos: true,
        logit_bias: vec![(405, 90.0)],
        ..SamplingParams::default()
    };
    let forced = RawRequest { params: one, ..greedy("One upon a time", true) };
    check_steps(eagle3, forced.clone(), 0.4).await;
    check_steps(heads::narrow(3), forced.clone(), 0.4).await;
    check_steps(speculator, forced, 0.4).await;
    // A model agrees with itself.
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    let itself = SpeculativeConfig { method: SpeculativeMethod::DraftModel { model }, ..draft };
    check_steps(itself.clone(), greedy("One upon a time", true), 0.4).await;
    // It guesses nothing after longer texts than the settings allow.
    let short = SpeculativeConfig { max_model_len: Some(16), ..itself };
    let request = greedy("One upon a time", true);
    let (num_steps, num_tokens) = steps(|config| set(config, Some(short)), request).await;
    assert!(num_steps + 20 >= num_tokens, "{num_steps} steps for {num_tokens} tokens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_tokens_save_steps() {
    let params = SamplingParams {
        temperature: 0.0,
        // Each digit is a token, so the text can be written in one way.
        structured_output: Some(Arc::new(OutputFormat::Regex("(0123456789){5}".to_owned()).into())),
        ..SamplingParams::default()
    };
    let prompt = Prompt::Text("Count:".to_owned());
    let request = RawRequest { params, max_tokens: Some(60), ..RawRequest::new(prompt) };
    let (without, tokens) = steps(|config| set(config, None), request.clone()).await;
    let (with, same) = steps(|config| config.jump_forward = Some(true), request).await;
    assert_eq!(tokens, same);
    assert!(with * 2 < without, "{with} steps with jump-forward, {without} without");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_survive_the_death_of_any_actor() {
    assert!(draft_model().is_dir());
    for method in methods() {
        let engine = workload::engine_with(|config| {
            set(config, Some(method));
            config.async_scheduling = Some(true);
        });
        let busy = BusyEngine::open(engine.await).await;
        let roles = [Role::Worker, Role::Scheduler, Role::KvCacheManager, Role::Ledger];
        let ways = [How::Panic, How::Kill].into_iter().cycle();
        let strikes: Vec<_> = roles.into_iter().cycle().zip(ways).take(16).collect();
        let deaths = busy.storm(&strikes, Duration::from_millis(60)).await;
        assert!(deaths >= 8, "{deaths} deaths");
        busy.strike(Role::Worker, 0, How::Hang).await;
        busy.close().await.shutdown().await;
    }
}
