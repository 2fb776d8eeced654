//! The demo model's head for vectors ranks held-out queries as PyTorch did, and mostly right.
//! `examples/demo-model/train.py --embedder` asked PyTorch.

use std::path::Path;

use playhouse::{Engine, EngineConfig, config::Dtype};
use serde::Deserialize;

/// Largest accepted difference of a score. PyTorch computes in float32, as the engine does here.
const TOLERANCE: f32 = 1e-3;
/// Smallest share of queries whose right document is the first one.
const AT_LEAST: f64 = 0.8;

#[derive(Deserialize)]
struct Ranking {
    query: String,
    documents: Vec<String>,
    right: usize,
    scores: Vec<f32>,
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ranks_held_out_queries() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model/embedder");
    let config = EngineConfig { dtype: Dtype::Float32, ..EngineConfig::new(folder) };
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    let lines = include_str!("rankings.jsonl").lines();
    let rankings: Vec<Ranking> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut num_right = 0;
    for Ranking { query, documents, right, scores } in &rankings {
        let found = engine.rerank(query, documents, None).await.unwrap();
        for ranked in &found {
            let expected = scores[ranked.index];
            assert!((ranked.score - expected).abs() < TOLERANCE, "{query}: {ranked:?} {expected}");
        }
        num_right += usize::from(found[0].index == *right);
    }
    engine.shutdown().await;
    assert!(rankings.len() >= 20);
    let share = num_right as f64 / rankings.len() as f64;
    assert!(share >= AT_LEAST, "{num_right} of {} are right", rankings.len());
}
