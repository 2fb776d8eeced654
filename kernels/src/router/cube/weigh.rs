//! The scores of experts, and the weights of those that were chosen.

use cubecl::prelude::*;

use super::choose::Memory;
use super::{Factors, Form, Kind};
use crate::cube::{max_of_units, sum_of_units};

/// Added to the sum that renormalized weights of the logistic function are divided by.
const SIGMOID_SUM_ADDED: f32 = 1e-20;

/// The numbers that turn a logit into its score.
#[derive(CubeType)]
pub(super) struct Softmax {
    largest: f32,
    sum: f32,
}

/// Returns the largest logit of a row and the sum of its exponentials, where scores need them.
#[cube]
pub(super) fn row_softmax(logits: &[f32], row: usize, #[comptime] form: Form) -> Softmax {
    let (experts, units) = comptime!((form.num_experts, form.units));
    let unit = UNIT_POS as usize;
    let mut softmax = Softmax { largest: 0.0f32.runtime(), sum: 1.0f32.runtime() };
    if comptime!(form.scoring == Kind::Softmax) {
        let mut largest = f32::MIN.runtime();
        let mut e = unit;
        while e < experts {
            let x = logits[row + e];
            largest = select(x > largest, x, largest);
            e += units;
        }
        softmax.largest = max_of_units(largest, units);
        let mut sum = 0.0f32.runtime();
        let mut e = unit;
        while e < experts {
            sum += (logits[row + e] - softmax.largest).exp();
            e += units;
        }
        softmax.sum = sum_of_units(sum, units);
    }
    softmax
}

/// Returns the score of a logit.
#[cube]
pub(super) fn score(logit: f32, softmax: &Softmax, #[comptime] form: Form) -> f32 {
    match comptime!(form.scoring) {
        Kind::Softmax => (logit - softmax.largest).exp() / softmax.sum,
        Kind::Sigmoid | Kind::SigmoidOfChosen => 1.0f32 / (1.0f32 + (-logit).exp()),
        Kind::SoftmaxOfChosen | Kind::SparseMixer => logit,
    }
}

/// Returns the weight of the choice at `place` among the experts near it, without earlier choices.
#[cube]
fn weight_among_near(
    logits: &[f32],
    row: usize,
    memory: &mut Memory,
    place: usize,
    jitter: f32,
    #[comptime] form: Form,
) -> f32 {
    let best = logits[row + memory.chosen[place] as usize];
    let mut sum = 0.0f32.runtime();
    for e in 0..comptime!(form.num_experts) {
        let x = logits[row + e];
        let magnitude = select(x < 0.0f32, -x, x);
        let divisor = select(magnitude > best, magnitude, best);
        let mut counts = 1.0f32.runtime();
        // A comparison with NaN is false, so that NaN reaches the result.
        if (best - x) / divisor > 2.0f32 * jitter {
            counts = 0.0f32.runtime();
        }
        for earlier in 0..place {
            if memory.chosen[earlier] == e as u32 {
                counts = 0.0f32.runtime();
            }
        }
        if counts > 0.0f32 {
            sum += (x - best).exp();
        }
    }
    1.0f32 / sum
}

/// Writes the chosen experts and their weights to the choices from `first` on.
#[cube]
pub(super) fn write_weights(
    logits: &[f32],
    row: usize,
    memory: &mut Memory,
    softmax: &Softmax,
    choices: &mut [u32],
    first: usize,
    factors: &Factors,
    #[comptime] form: Form,
) {
    let (top_k, units) = comptime!((form.top_k, form.units));
    let unit = UNIT_POS as usize;
    let is_of_chosen = comptime!(form.scoring == Kind::SoftmaxOfChosen);
    let mut largest = f32::MIN.runtime();
    if comptime!(is_of_chosen) {
        for place in 0..top_k {
            let x = logits[row + memory.chosen[place] as usize];
            largest = select(x > largest, x, largest);
        }
    }
    let mut place = unit;
    while place < top_k {
        let mut weight = score(logits[row + memory.chosen[place] as usize], softmax, form);
        if comptime!(is_of_chosen) {
            weight = (weight - largest).exp();
        }
        if comptime!(form.scoring == Kind::SparseMixer) {
            weight = weight_among_near(logits, row, memory, place, factors.jitter, form);
        }
        memory.weights[place] = weight;
        place += units;
    }
    sync_cube();
    let mut divisor = 1.0f32.runtime();
    let is_sparse = comptime!(form.scoring == Kind::SparseMixer);
    if comptime!(is_of_chosen || form.renormalize && !is_sparse) {
        let mut sum = 0.0f32.runtime();
        for place in 0..top_k {
            sum += memory.weights[place];
        }
        divisor = match comptime!(form.scoring) {
            Kind::Softmax => select(sum < factors.min_sum, factors.min_sum, sum),
            Kind::Sigmoid | Kind::SigmoidOfChosen => sum + SIGMOID_SUM_ADDED,
            Kind::SoftmaxOfChosen | Kind::SparseMixer => sum,
        };
    }
    let mut place = unit;
    while place < top_k {
        let at = 2 * (first + place);
        choices[at] = memory.chosen[place];
        choices[at + 1] = u32::reinterpret(memory.weights[place] / divisor * factors.scale);
        place += units;
    }
}
