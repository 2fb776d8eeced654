//! Sampling on the device of the logits. Only tokens and log-probabilities are copied to the host.
//!
//! A cube has one row. Masks, biases and penalties come as a list of edits, which are made on a
//! copy. `top_k` and `top_p` are thresholds, found three bits at a time ([`threshold`]). The noise
//! is the host's, in float32. The vocabulary alone decides the order of sums, so a row's token is
//! the same in every batch.

mod edit;
mod noise;
mod pick;
mod plan;
mod tell;
mod threshold;
mod truncate;

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{LogprobRow, SampleError, Sampled, SamplingRow};
use crate::KernelError;
use crate::cube::Rows;
use plan::Plan;
use tell::Question;

/// Units of a cube.
const UNITS: usize = 256;

/// Number of thresholds that a pass over a row tries.
const TRIED: usize = 7;

/// A masked logit. Lower logits are masked, too. No sum of finite products comes near it.
const MASKED: f32 = f32::MIN;

/// The status of a row. Statuses are whole words, because WGSL has no bytes.
const PICKED: u32 = 0;
const GARBAGE: u32 = 1;

/// Picks a token for each row of `logits`, `[rows.len(), vocab]`. Replaces the content of
/// `sampled`.
pub(super) fn sample(
    logits: CubeTensor,
    rows: &[SamplingRow<'_>],
    sampled: &mut Vec<Result<Sampled, SampleError>>,
) -> Result<(), KernelError> {
    sampled.clear();
    let logits = Rows::new(logits);
    assert_eq!(logits.rows, rows.len(), "sample: logits of {} rows", rows.len());
    if rows.is_empty() {
        return Ok(());
    }
    let places = logits.rows * logits.cols;
    assert!(u32::try_from(places).is_ok(), "sample: {places} logits are more than words count");
    let plan = Plan::new(rows, logits.cols);
    let edited = edit::edited(&logits, &plan);
    let picks = pick::pick(&logits, edited.as_ref(), &plan);
    let picked = pick::read(&logits, &picks)?.into_iter();
    sampled.extend(picked.map(|token| token.map(|token_id| Sampled { token_id, logprobs: None })));
    // The host needs the tokens before it can ask for their log-probabilities, so these cost a
    // second round trip.
    let question = |(i, sampled): (usize, &Result<Sampled, SampleError>)| {
        let (token, k) = (sampled.as_ref().ok()?.token_id, rows[i].num_logprobs?);
        Some(Question { row: i as u32, token, k, named: rows[i].logprob_token_ids })
    };
    let questions: Vec<_> = sampled.iter().enumerate().filter_map(question).collect();
    let told = tell::tell(&logits, &questions)?;
    for (question, told) in questions.iter().zip(told) {
        if let Ok(sampled) = &mut sampled[question.row as usize] {
            sampled.logprobs = Some(told);
        }
    }
    Ok(())
}

/// Returns log-probabilities of rows of `logits`, `[wanted.len(), vocab]`. Each row has a token,
/// and the number of likeliest tokens.
pub(super) fn logprobs(
    logits: CubeTensor,
    wanted: &[(u32, u32)],
) -> Result<Vec<LogprobRow>, KernelError> {
    let logits = Rows::new(logits);
    assert_eq!(logits.rows, wanted.len(), "logprobs: logits of {} rows", wanted.len());
    let question = |(row, &(token, k)): (usize, &(u32, u32))| {
        assert!((token as usize) < logits.cols, "logprobs: token {token} of {}", logits.cols);
        Question { row: row as u32, token, k, named: &[] }
    };
    tell::tell(&logits, &wanted.iter().enumerate().map(question).collect::<Vec<_>>())
}

/// Returns a number's place among all numbers, as an integer: larger for larger numbers.
#[cube]
fn rank(x: f32) -> u32 {
    // Both zeros are one number.
    let bits = select(x == 0.0f32, 0u32.runtime(), u32::reinterpret(x));
    let flip = select(bits >= 0x8000_0000u32, 0xffff_ffffu32, 0x8000_0000u32);
    bits ^ flip
}

/// Memory that the units of a cube share, for one step after another.
#[derive(CubeType)]
struct Scratch {
    /// Seven numbers a unit.
    numbers: Shared<[f32]>,
    /// One token a unit.
    ids: Shared<[u32]>,
}

#[cube]
impl Scratch {
    fn new() -> Scratch {
        Scratch {
            numbers: Shared::<[f32]>::new_slice(comptime!(TRIED * UNITS)),
            ids: Shared::<[u32]>::new_slice(UNITS),
        }
    }

    /// Returns the best of all units' candidates: the largest number, and of equal ones the lowest
    /// id. Every unit gets it.
    fn best(&mut self, number: f32, id: u32) -> (f32, u32) {
        let unit = UNIT_POS as usize;
        self.numbers[unit] = number;
        self.ids[unit] = id;
        sync_cube();
        let mut step = comptime!(UNITS / 2).runtime();
        while step > 0 {
            if unit < step {
                let (other, other_id) = (self.numbers[unit + step], self.ids[unit + step]);
                let (mine, my_id) = (self.numbers[unit], self.ids[unit]);
                if other > mine || (other == mine && other_id < my_id) {
                    self.numbers[unit] = other;
                    self.ids[unit] = other_id;
                }
            }
            sync_cube();
            step /= 2;
        }
        let best = (self.numbers[0], self.ids[0]);
        // The next step may write only now.
        sync_cube();
        best
    }

    /// Adds `partial` of all units in a tree. Every unit gets the sum.
    fn sum(&mut self, partial: f32) -> f32 {
        let unit = UNIT_POS as usize;
        self.numbers[unit] = partial;
        sync_cube();
        let mut step = comptime!(UNITS / 2).runtime();
        while step > 0 {
            if unit < step {
                let other = self.numbers[unit + step];
                self.numbers[unit] += other;
            }
            sync_cube();
            step /= 2;
        }
        let sum = self.numbers[0];
        sync_cube();
        sum
    }
}
