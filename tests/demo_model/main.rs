//! The demo model, served with default settings, gives the answers that PyTorch computed, for each
//! skill. `examples/demo-model/evaluate.py --record` asked PyTorch and kept the right answers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod embedder;
#[path = "../serving/mod.rs"]
mod serving;
mod vision;

use std::collections::BTreeMap;

use playhouse::{
    Engine, EngineConfig,
    api::{ChoiceStream, Prompt, RawRequest, SamplingParams},
};
use serde::Deserialize;

/// Smallest share of a skill's answers that must agree. PyTorch sums in float32. Here keys and
/// values are kept in bfloat16, which may change a close decision.
const AT_LEAST: f64 = 0.8;
/// Smallest share of all answers that must agree.
const AT_LEAST_OF_ALL: f64 = 0.95;

#[derive(Deserialize)]
struct Recorded {
    skill: String,
    prompt: String,
    answer: String,
}

fn recorded() -> Vec<Recorded> {
    let lines = include_str!("answers.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn request(prompt: &str) -> RawRequest {
    let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let prompt = Prompt::Text(prompt.to_owned());
    RawRequest { params, max_tokens: Some(512), ..RawRequest::new(prompt) }
}

async fn text(mut stream: ChoiceStream) -> String {
    let mut text = String::new();
    while let Some(delta) = stream.next().await {
        text.push_str(&delta.text);
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_as_it_was_taught() {
    let engine = Engine::spawn(EngineConfig::default(), |_| ()).await.unwrap();
    let recorded = recorded();
    let mut streams = Vec::new();
    for recorded in &recorded {
        streams.push(engine.submit(request(&recorded.prompt)).await.unwrap().choices.remove(0));
    }
    let mut skills: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (recorded, stream) in recorded.iter().zip(streams) {
        let (agree, asked) = skills.entry(&recorded.skill).or_default();
        let said = text(stream).await;
        *agree += usize::from(said == recorded.answer);
        *asked += 1;
    }
    engine.shutdown().await;
    assert!(skills.len() >= 12, "{skills:?}");
    let share = |(agree, asked): (usize, usize)| agree as f64 / asked as f64;
    assert!(skills.values().all(|&skill| share(skill) >= AT_LEAST), "{skills:?}");
    let all = skills.values().fold((0, 0), |all, skill| (all.0 + skill.0, all.1 + skill.1));
    assert!(share(all) >= AT_LEAST_OF_ALL, "{skills:?}");
}
