//! A recorded step of a mixture, replayed with tokens that other experts are chosen for.

use std::slice::from_mut;

use super::*;
use crate::cube::test_device::{bits, numbers, tensor, test_device, values, vector};
use crate::{
    Activation, AttentionMetadata, LinearWeight, Router, RouterConfig, Scoring, StepGraphs,
    WeightDtype, WeightView, linear, route, tied_embedding,
};

const HIDDEN: usize = 32;
const INTER: usize = 64;
const EXPERTS: usize = 9;
const VOCAB: usize = 50;

#[test]
fn a_replayed_step_uses_the_experts_of_its_own_tokens() {
    let Some(device) = test_device() else { return };
    let weight = |outputs: usize, inputs: usize, seed| {
        let w = numbers(outputs * inputs, seed);
        LinearWeight::pack(&[WeightView::F32(&w)], inputs, WeightDtype::F32, &device).unwrap()
    };
    let (embedding, gate) = (weight(VOCAB, HIDDEN, 1), weight(EXPERTS, HIDDEN, 2));
    let weights = ExpertWeights {
        gate_up: (0..EXPERTS).map(|e| weight(2 * INTER, HIDDEN, 3 + e)).collect(),
        down: (0..EXPERTS).map(|e| weight(HIDDEN, INTER, 30 + e)).collect(),
        gate_up_bias: None,
        down_bias: None,
    };
    let layer = Experts::new(weights, ExpertActivation::Gated(Activation::Silu), false).unwrap();
    let config = RouterConfig {
        num_experts: EXPERTS,
        top_k: 3,
        scoring: Scoring::Sigmoid,
        renormalize: true,
        min_sum: RouterConfig::MIN_SUM,
        jitter: 0.0,
        groups: None,
        scale: 1.5,
    };
    let router = Router::new(config, Some(vector(&numbers(EXPERTS, 5), &device))).unwrap();
    let routing =
        |ids: &[u32]| route(linear(tied_embedding(&embedding, ids), &gate, None), &router);
    let forward = |ids: &[u32], _: &[AttentionMetadata]| {
        experts(tied_embedding(&embedding, ids), &routing(ids), &layer)
    };
    let mut graphs = StepGraphs::new(&device, 1 << 30);
    let mut chosen = Vec::new();
    for (step, tokens) in [3, 4, 40, 3, 4, 37, 4].into_iter().enumerate() {
        let mut ids: Vec<u32> = (0..tokens).map(|i| (i * 7 + step * 11) as u32 % 50).collect();
        let expected = values(forward(&ids, &[]));
        chosen.push(routing(&ids).to_host().unwrap()[0].expert);
        let mut meta = AttentionMetadata {
            query_start_loc: (0..=tokens as u32).collect(),
            seq_lens: vec![1; tokens],
            block_tables: vec![vec![1]; tokens],
            slot_mapping: vec![16; tokens],
            positions: vec![0; tokens],
            visible_ends: Vec::new(),
            num_guesses: Vec::new(),
        };
        let hidden = graphs.run(&mut ids, from_mut(&mut meta), forward);
        let got = values(hidden.narrow(0, 0, tokens));
        assert_eq!(bits(&got), bits(&expected), "step {step}");
    }
    let stats = graphs.stats();
    assert_eq!((stats.recorded, stats.replayed), (2, 5), "{stats:?}");
    assert_eq!(graphs.take_failure(), None);
    chosen.dedup();
    assert!(chosen.len() > 3, "the steps have the same experts: {chosen:?}");
    // Choices of a caller cannot be renewed.
    let x = tensor(&numbers(HIDDEN, 1), HIDDEN, &device);
    let made = crate::Choice { expert: 1, weight: 1.0 };
    let made = Routing::new(&[made], 1, EXPERTS).unwrap();
    let (_, is_of_caller) = crate::cube::caller_numbers::noted(|| experts(x, &made, &layer));
    assert!(is_of_caller);
}
