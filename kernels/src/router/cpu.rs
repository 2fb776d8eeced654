//! The router on the CPU: rows of logits one by one.

use burn_flex::FlexTensor;

use super::choose::choose_experts;
use super::scores::{sigmoid, softmax};
use super::{Choice, GroupScore, Router, RouterConfig, Routing, Scoring};
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::tensors::{dense, dims2, values};
use crate::threads::{SharedMut, for_each_piece};
use crate::workspace::{Scratch, give_back};

/// Logits of a piece of work, about.
const PIECE_LOGITS: usize = 1 << 13;

/// Added to the sum that renormalized weights of the logistic function are divided by.
const SIGMOID_SUM_ADDED: f32 = 1e-20;

/// Chooses experts on CPU tensors.
pub(crate) fn route(logits: FlexTensor, router: &Router) -> Routing {
    let [tokens, width] = dims2(&logits);
    let RouterConfig { num_experts, top_k, .. } = router.config;
    assert_eq!(width, num_experts, "route: width of logits [{tokens}, {width}]");
    let logits = dense(logits);
    let mut routing = Routing::unset(tokens, top_k, num_experts);
    choose(Isa::active(), values(&logits), router, routing.choices_mut());
    give_back(logits);
    routing
}

/// Chooses experts on one instruction set, into `[token][place]`.
pub(super) fn choose(isa: Isa, logits: &[f32], router: &Router, choices: &mut [Choice]) {
    let RouterConfig { num_experts, top_k, .. } = router.config;
    let tokens = logits.len() / num_experts;
    let per_piece = (PIECE_LOGITS / num_experts).max(1);
    let choices = SharedMut::new(choices);
    for_each_piece(tokens.div_ceil(per_piece), logits.len(), |piece| {
        let tokens = piece * per_piece..tokens.min((piece + 1) * per_piece);
        // SAFETY: pieces have different tokens.
        let choices = unsafe { choices.slice(tokens.start * top_k, tokens.len() * top_k) };
        let logits = &logits[tokens.start * num_experts..tokens.end * num_experts];
        isa.run(RouteRows { logits, router, choices });
    });
}

/// The task of choosing experts for some tokens.
struct RouteRows<'a> {
    logits: &'a [f32],
    router: &'a Router,
    choices: &'a mut [Choice],
}

impl Kernel for RouteRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { logits, router, choices } = self;
        let RouterConfig { num_experts, top_k, .. } = router.config;
        let mut scores = Scratch::new(num_experts.next_multiple_of(LANES));
        let mut keys = Scratch::new(num_experts);
        let rows = logits.chunks_exact(num_experts).zip(choices.chunks_exact_mut(top_k));
        for (logits, chosen) in rows {
            fill_scores(s, router.config.scoring, logits, &mut scores);
            fill_keys(router, logits, &scores, &mut keys);
            choose_experts(&keys, router.config.groups.as_ref(), chosen);
            match router.config.scoring {
                Scoring::SoftmaxOfChosen => weigh_logits(s, logits, &mut scores, chosen),
                Scoring::SparseMixer => {
                    weigh_near(s, router.config.jitter, logits, &mut scores, chosen);
                }
                Scoring::SigmoidOfChosen => {
                    sigmoid(s, &mut scores);
                    weigh_scores(router, &scores, chosen);
                }
                Scoring::Softmax | Scoring::Sigmoid => weigh_scores(router, &scores, chosen),
            }
            for choice in chosen {
                choice.weight *= router.config.scale;
                if let Some(scales) = &router.expert_scales {
                    choice.weight *= scales.cpu()[choice.expert as usize];
                }
            }
        }
    }
}

/// Writes the scores of a row, and numbers without a meaning beyond them.
#[inline(always)]
fn fill_scores<S: Simd>(s: S, scoring: Scoring, logits: &[f32], scores: &mut [f32]) {
    let (known, beyond) = scores.split_at_mut(logits.len());
    known.copy_from_slice(logits);
    beyond.fill(f32::NEG_INFINITY);
    match scoring {
        Scoring::Softmax => softmax(s, scores),
        Scoring::Sigmoid => sigmoid(s, scores),
        // Experts are chosen by logits.
        Scoring::SoftmaxOfChosen | Scoring::SigmoidOfChosen | Scoring::SparseMixer => {}
    }
}

/// Writes the numbers that experts are chosen by.
#[inline(always)]
fn fill_keys(router: &Router, logits: &[f32], scores: &[f32], keys: &mut [f32]) {
    let needs_scores = router.config.groups.is_some_and(|g| g.by == GroupScore::TopTwoSum);
    match &router.correction_bias {
        None if !needs_scores => keys.copy_from_slice(logits),
        None => keys.copy_from_slice(&scores[..keys.len()]),
        Some(bias) => {
            for ((key, score), bias) in keys.iter_mut().zip(scores).zip(bias.cpu()) {
                *key = score + bias;
            }
        }
    }
}

/// Sets weights to the softmax of the chosen logits. Overwrites `scratch`.
#[inline(always)]
fn weigh_logits<S: Simd>(s: S, logits: &[f32], scratch: &mut [f32], chosen: &mut [Choice]) {
    let scratch = &mut scratch[..chosen.len().next_multiple_of(LANES)];
    scratch.fill(f32::NEG_INFINITY);
    for (x, choice) in scratch.iter_mut().zip(&*chosen) {
        *x = logits[choice.expert as usize];
    }
    softmax(s, scratch);
    for (choice, weight) in chosen.iter_mut().zip(&*scratch) {
        choice.weight = *weight;
    }
}

/// Sets each weight to the softmax over the logits near the chosen one, without those of earlier
/// choices. Overwrites `scratch`.
#[inline(always)]
fn weigh_near<S: Simd>(
    s: S,
    jitter: f32,
    logits: &[f32],
    scratch: &mut [f32],
    chosen: &mut [Choice],
) {
    for place in 0..chosen.len() {
        let expert = chosen[place].expert as usize;
        let best = logits[expert];
        scratch.fill(f32::NEG_INFINITY);
        for (x, logit) in scratch.iter_mut().zip(logits) {
            // A comparison with NaN is false, so that NaN is near and reaches the result.
            let is_far = (best - logit) / logit.abs().max(best) > 2.0 * jitter;
            *x = if is_far { f32::NEG_INFINITY } else { *logit };
        }
        for earlier in &chosen[..place] {
            scratch[earlier.expert as usize] = f32::NEG_INFINITY;
        }
        softmax(s, scratch);
        chosen[place].weight = scratch[expert];
    }
}

/// Sets weights to the scores of the chosen experts, divided by their sum where that is asked for.
#[inline(always)]
fn weigh_scores(router: &Router, scores: &[f32], chosen: &mut [Choice]) {
    let mut sum = 0.0;
    for choice in chosen.iter_mut() {
        choice.weight = scores[choice.expert as usize];
        sum += choice.weight;
    }
    if !router.config.renormalize {
        return;
    }
    let divisor = match router.config.scoring {
        Scoring::Sigmoid | Scoring::SigmoidOfChosen => sum + SIGMOID_SUM_ADDED,
        // Not `max`, which would hide NaN.
        _ if sum < router.config.min_sum => router.config.min_sum,
        _ => sum,
    };
    for choice in chosen {
        choice.weight /= divisor;
    }
}
