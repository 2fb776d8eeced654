//! Encoder-decoder models for text in a running engine: alone, eight in flight, in small steps, in
//! small caches, on prefix hits, with a beam, and while actors die. The greedy tokens always equal
//! transformers'.

use playhouse::{
    Engine, EngineConfig,
    api::{How, Prompt, RawRequest, Role},
    config::{Device, Dtype},
    engine::BeamSearchParams,
};

use crate::TOLERANCE;
use crate::engine::{self, Output, collect};
use crate::texts::{NAMES, Recorded, folder, recorded};

fn config(name: &str) -> EngineConfig {
    EngineConfig {
        allow_chaos: true,
        device: Device::Cpu,
        dtype: Dtype::Float32,
        ..EngineConfig::new(folder(name))
    }
}

fn request(recorded: &Recorded) -> RawRequest {
    let request = engine::request(&[], recorded.greedy_token_ids.len(), 0.0, 0);
    RawRequest { prompt: Prompt::Text(recorded.text.clone()), ..request }
}

fn assert_answers(name: &str, recorded: &Recorded, output: &Output) {
    assert_eq!(output.tokens, recorded.greedy_token_ids, "{name}: {:?}", recorded.text);
    for (found, expected) in output.logprobs.iter().zip(&recorded.greedy_log_probs) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference <= TOLERANCE, "{name}: {found}, not {expected}");
    }
}

/// Runs all texts at once.
async fn check(name: &str, change: impl Fn(&mut EngineConfig)) {
    let (texts, mut config) = (recorded(name), config(name));
    change(&mut config);
    let (outputs, _) = engine::run(config, texts.iter().map(request).collect()).await;
    for (recorded, output) in texts.iter().zip(&outputs) {
        assert_answers(name, recorded, output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_texts_in_flight() {
    for name in NAMES {
        check(name, |_| ()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_steps_and_caches() {
    for name in ["bart", "m2m_100"] {
        // The longest text fills the encoder's cache, so others wait for their turn.
        check(name, |config| config.max_num_batched_tokens = 2).await;
        check(name, |config| engine::shrink(config, 6)).await;
        check(name, |config| config.async_scheduling = Some(true)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_alone_and_counted() {
    for name in ["bart", "mbart-wide"] {
        let engine = Engine::spawn(config(name), |_| ()).await.unwrap();
        for text in recorded(name) {
            let mut submission = engine.submit(request(&text)).await.unwrap();
            assert_eq!(*submission.prompt_token_ids, *text.prompt_token_ids);
            let both = text.prompt_token_ids.len() + text.text_token_ids.len();
            assert_eq!(submission.num_input_tokens(), both);
            assert_answers(name, &text, &collect(submission.choices.remove(0)).await);
            // The tokens of the text do the same.
            let prompt = Prompt::Tokens(text.text_token_ids.clone());
            let same = RawRequest { prompt, ..request(&text) };
            let mut submission = engine.submit(same).await.unwrap();
            assert_answers(name, &text, &collect(submission.choices.remove(0)).await);
        }
        engine.shutdown().await;
    }
}

/// All decoders begin with the same tokens, so only the text tells their blocks apart.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_one_text_are_never_those_of_another() {
    let config = EngineConfig { block_size: 8, ..config("bart") };
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    for text in recorded("bart").iter().chain(&recorded("bart")) {
        let output = collect(engine.submit(request(text)).await.unwrap().choices.remove(0)).await;
        assert_answers("bart", text, &output);
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_beam_is_greedy() {
    let engine = Engine::spawn(config("bart"), |_| ()).await.unwrap();
    for text in recorded("bart").iter().take(4) {
        let max_tokens = Some(text.greedy_token_ids.len() as u32);
        let params = BeamSearchParams { max_tokens, ignore_eos: true, ..BeamSearchParams::new(1) };
        let found = engine.beam_search(request(text), params).await.unwrap();
        let tokens: Vec<u32> = found.beams[0].tokens.iter().map(|token| token.token_id).collect();
        assert_eq!(tokens, text.greedy_token_ids);
        let both = text.prompt_token_ids.len() + text.text_token_ids.len();
        assert_eq!(found.num_input_tokens, both);
    }
    engine.shutdown().await;
}

/// The actors that texts pass.
const ROLES: [Role; 6] = [
    Role::EncoderCacheManager,
    Role::EncoderWorker,
    Role::Worker,
    Role::Scheduler,
    Role::KvCacheManager,
    Role::InputProcessor,
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_texts_outlive_the_actors_on_their_way() {
    for name in ["bart", "mbart", "marian", "pegasus", "blenderbot", "m2m_100", "t5"] {
        let engine = Engine::spawn(config(name), |_| ()).await.unwrap();
        let texts = recorded(name);
        for (turn, role) in ROLES.into_iter().enumerate() {
            let how = if turn % 2 == 0 { How::Kill } else { How::Panic };
            let mut streams = Vec::new();
            for text in &texts {
                // Another salt computes the prompt again.
                let salt = Some(format!("{turn}"));
                let request = RawRequest { cache_salt: salt, ..request(text) };
                streams.push(engine.submit(request).await.unwrap().choices.remove(0));
            }
            engine.chaos().strike(role, 0, how).unwrap();
            for (text, stream) in texts.iter().zip(streams) {
                assert_answers(&format!("{name}, {role:?}"), text, &collect(stream).await);
            }
        }
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn longer_texts_are_refused_or_cut() {
    let engine = Engine::spawn(config("bart"), |_| ()).await.unwrap();
    let long = |truncate: Option<i64>| {
        let prompt = Prompt::Text("a".repeat(63));
        RawRequest {
            truncate_prompt_tokens: truncate,
            max_tokens: Some(2),
            ..RawRequest::new(prompt)
        }
    };
    // 63 letters, with a token on each side.
    let refused = engine.submit(long(None)).await.unwrap_err().to_string();
    assert!(refused.contains("at most 64 tokens") && refused.contains("at least 65"), "{refused}");
    let cut = engine.submit(long(Some(-1))).await.unwrap();
    assert_eq!(cut.num_input_tokens(), 64 + 2);
    // The decoder has positions of its own.
    let request = RawRequest { max_tokens: Some(65), ..RawRequest::new(Prompt::Text("a".into())) };
    let refused = engine.submit(request).await.unwrap_err().to_string();
    assert!(refused.contains("64 tokens") && refused.contains("65 output tokens"), "{refused}");
    engine.shutdown().await;
}
