//! Tests on a GPU. Choices and weights agree with the reference. A row has the same bytes alone and
//! in a batch.

use burn::tensor::Device;

use super::*;
use crate::cube::test_device::{numbers, tensor, test_device, vector};

fn run(logits: &[f32], router: &Router, device: &Device) -> Vec<Choice> {
    let width = router.config.num_experts;
    route(tensor(logits, width, device), router).to_host().unwrap()
}

fn config(num_experts: usize, top_k: usize, scoring: Scoring) -> RouterConfig {
    RouterConfig {
        num_experts,
        top_k,
        scoring,
        renormalize: false,
        min_sum: RouterConfig::MIN_SUM,
        jitter: 0.1,
        groups: None,
        scale: 1.0,
    }
}

fn router(config: RouterConfig, bias: Option<&[f32]>, device: &Device) -> Router {
    Router::new(config, bias.map(|bias| vector(bias, device))).unwrap()
}

fn check(spread: f32, config: RouterConfig, bias: Option<&[f32]>, device: &Device) {
    let tokens = 5;
    let logits: Vec<f32> =
        numbers(tokens * config.num_experts, 11).iter().map(|x| x * spread).collect();
    let choices = run(&logits, &router(config, bias, device), device);
    assert_eq!(choices.len(), tokens * config.top_k);
    let rows = logits.chunks_exact(config.num_experts).zip(choices.chunks_exact(config.top_k));
    for (logits, choices) in rows {
        if reference::least_gap(logits, &config, bias) < 1e-6 {
            continue;
        }
        let exact = reference::route(logits, &config, bias);
        for (choice, (expert, weight)) in choices.iter().zip(exact) {
            assert_eq!(choice.expert as usize, expert, "{config:?}");
            let error = (f64::from(choice.weight) - weight).abs();
            assert!(error <= 3e-5 * weight.abs() + 1e-30, "{config:?}: {choice:?} {weight}");
        }
    }
}

const SCORINGS: [Scoring; 5] = [
    Scoring::Softmax,
    Scoring::Sigmoid,
    Scoring::SoftmaxOfChosen,
    Scoring::SigmoidOfChosen,
    Scoring::SparseMixer,
];

#[test]
fn every_scoring_agrees_with_the_reference() {
    let Some(device) = test_device() else { return };
    // One expert, a number that is no power of two, and more experts than units.
    for (num_experts, top_k) in [(1, 1), (3, 3), (60, 4), (128, 8), (300, 7)] {
        for scoring in SCORINGS {
            for (renormalize, has_bias) in [(false, false), (true, false), (true, true)] {
                let bias = has_bias.then(|| numbers(num_experts, 3));
                let config = RouterConfig {
                    renormalize,
                    scale: if has_bias { 2.5 } else { 1.0 },
                    min_sum: if has_bias { 0.3 } else { RouterConfig::MIN_SUM },
                    ..config(num_experts, top_k, scoring)
                };
                check(6.0, config, bias.as_deref(), &device);
            }
        }
    }
}

#[test]
fn weights_have_the_factors_of_their_experts() {
    let Some(device) = test_device() else { return };
    for (num_experts, top_k) in [(4, 2), (300, 7)] {
        let config =
            RouterConfig { renormalize: true, ..config(num_experts, top_k, Scoring::Softmax) };
        let (logits, factors) = (numbers(3 * num_experts, 11), numbers(num_experts, 5));
        let plain = run(&logits, &router(config, None, &device), &device);
        let scales = vector(&factors, &device);
        let scaled = router(config, None, &device).with_expert_scales(scales).unwrap();
        for (a, b) in run(&logits, &scaled, &device).iter().zip(plain) {
            let exact = b.weight * factors[b.expert as usize];
            assert!(a.expert == b.expert && (a.weight - exact).abs() < 1e-6, "{a:?} {exact}");
        }
    }
}

#[test]
fn groups_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (num_groups, size, num_chosen, top_k) in
        [(1, 4, 1, 3), (4, 2, 2, 3), (8, 8, 3, 6), (5, 7, 5, 9), (4, 75, 2, 6)]
    {
        for (by, scoring, is_v3) in [
            (GroupScore::TopTwoSum, Scoring::Sigmoid, true),
            (GroupScore::TopTwoSum, Scoring::Softmax, false),
            (GroupScore::Max, Scoring::Softmax, false),
            (GroupScore::Max, Scoring::SoftmaxOfChosen, true),
        ] {
            let config = RouterConfig {
                groups: Some(ExpertGroups { num_groups, num_chosen, by }),
                renormalize: is_v3,
                scale: 2.5,
                ..config(num_groups * size, top_k, scoring)
            };
            let bias = is_v3.then(|| numbers(num_groups * size, 3));
            check(4.0, config, bias.as_deref(), &device);
        }
    }
}

#[test]
fn a_row_does_not_see_its_batch() {
    let Some(device) = test_device() else { return };
    let (experts, tokens) = (60, 30);
    let logits = numbers(experts * tokens, 1);
    for scoring in SCORINGS {
        let config = RouterConfig { renormalize: true, ..config(experts, 5, scoring) };
        let router = router(config, None, &device);
        let row = |row: &[f32]| run(row, &router, &device);
        let alone: Vec<Choice> = logits.chunks_exact(experts).flat_map(row).collect();
        assert_eq!(run(&logits, &router, &device), alone, "{scoring:?}");
    }
}

#[test]
fn the_lower_index_comes_first_and_saturated_experts_by_their_logits() {
    let Some(device) = test_device() else { return };
    let router = router(config(4, 3, Scoring::Sigmoid), None, &device);
    let experts = |logits: &[f32]| -> Vec<u32> {
        run(logits, &router, &device).iter().map(|choice| choice.expert).collect()
    };
    assert_eq!(experts(&[30.0, 60.0, 20.0, 60.0]), [1, 3, 0]);
    assert_eq!(experts(&[0.0, -0.0, 0.0, -1.0]), [0, 1, 2]);
    assert_eq!(experts(&[-4.0, -3.0, f32::NEG_INFINITY, -5.0]), [1, 0, 3]);
}

#[test]
fn what_is_no_number_reaches_the_weights() {
    let Some(device) = test_device() else { return };
    for scoring in SCORINGS {
        let config = RouterConfig { renormalize: true, ..config(20, 2, scoring) };
        let router = router(config, None, &device);
        let mut logits = vec![1.0; 20];
        logits[17] = f32::NAN;
        let choices = run(&logits, &router, &device);
        assert_eq!(choices[0].expert, 17, "{scoring:?}");
        assert!(choices[0].weight.is_nan(), "{scoring:?}: {choices:?}");
        let all_nan = run(&[f32::NAN; 20], &router, &device);
        assert_eq!((all_nan[0].expert, all_nan[1].expert), (0, 1), "{scoring:?}");
    }
}

#[test]
fn a_batch_may_have_no_tokens() {
    let Some(device) = test_device() else { return };
    let router = router(config(4, 2, Scoring::Softmax), None, &device);
    assert!(run(&[], &router, &device).is_empty());
}
