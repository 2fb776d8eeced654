//! The kernel that computes log-probabilities of the unmodified rows.

use cubecl::prelude::*;

use super::super::{LogprobRow, logprob_row};
use super::{MASKED, Scratch, UNITS};
use crate::KernelError;
use crate::cube::{Rows, cubes, device_error, upload, words_buffer};
use crate::select_rows;

/// Most tokens that a row may ask for here, each of which takes a pass. For more, the host computes
/// the answer from the row.
const TOLD_MAX: usize = 64;

/// Words of a question.
const QUESTION_WORDS: usize = 5;

/// The value that stands for no token.
const NONE: u32 = u32::MAX;

/// The question about one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    /// Row of the logits.
    pub(super) row: u32,
    pub(super) token: u32,
    /// Number of likeliest tokens.
    pub(super) k: u32,
    /// Further tokens to report.
    pub(super) named: &'a [u32],
}

impl Question<'_> {
    fn is_small(&self) -> bool {
        self.k as usize + self.named.len() <= TOLD_MAX
    }

    /// Returns the number of likeliest tokens to report.
    fn likeliest(&self, vocab: usize) -> usize {
        vocab.min(self.k as usize)
    }
}

/// Returns an answer for each question, as [`logprob_row`] does.
pub(super) fn tell(
    logits: &Rows,
    questions: &[Question<'_>],
) -> Result<Vec<LogprobRow>, KernelError> {
    let small: Vec<_> = questions.iter().filter(|question| question.is_small()).copied().collect();
    let mut by_kernel = ask(logits, &small)?.into_iter();
    let mut told = Vec::with_capacity(questions.len());
    for question in questions {
        match question.is_small() {
            true => told.extend(by_kernel.next()),
            false => told.push(on_host(logits, question)?),
        }
    }
    Ok(told)
}

fn on_host(logits: &Rows, question: &Question<'_>) -> Result<LogprobRow, KernelError> {
    let row = select_rows::cube::select_rows(logits.tensor().clone(), &[question.row]);
    let bytes = row.client.read_one(row.handle.clone()).map_err(device_error)?;
    let row: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes[..]);
    Ok(logprob_row(&row[..logits.cols], question.token, question.k, question.named))
}

fn ask(logits: &Rows, questions: &[Question<'_>]) -> Result<Vec<LogprobRow>, KernelError> {
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    let client = logits.client();
    let known = |id: &&u32| (**id as usize) < logits.cols;
    let named: Vec<Vec<u32>> =
        questions.iter().map(|q| q.named.iter().filter(known).copied().collect()).collect();
    let mut words = Vec::with_capacity(questions.len() * QUESTION_WORDS);
    let (mut names, mut told) = (Vec::new(), 0);
    for (question, named) in questions.iter().zip(&named) {
        let (k, first_name) = (question.likeliest(logits.cols), names.len() as u32);
        words.extend([question.row, question.token, k as u32, first_name, named.len() as u32]);
        names.extend(named);
        told = told.max(k + named.len());
    }
    let stride = 2 * (1 + told);
    let answers = client.empty(questions.len() * stride * size_of::<u32>());
    let (question_words, name_words) = (upload(client, &words), upload(client, &names));
    // SAFETY: a cube beyond the questions does nothing. Rows and tokens are those of the logits,
    // and an answer has room for everything that a question asks.
    unsafe {
        tell_kernel::launch_unchecked(
            client,
            cubes(questions.len()),
            CubeDim::new_1d(UNITS as u32),
            logits.arg(),
            words_buffer(&question_words),
            words_buffer(&name_words),
            words_buffer(&answers),
            questions.len(),
            logits.cols,
            logits.stride() * logits.lanes,
            stride,
        );
    }
    let bytes = client.read_one(answers).map_err(device_error)?;
    let answers: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes[..]);
    let answers = answers.chunks_exact(stride).zip(questions.iter().zip(&named));
    Ok(answers
        .map(|(answer, (question, named))| {
            let (likeliest, of_named) = answer[2..].split_at(2 * question.likeliest(logits.cols));
            row_of(answer, question, likeliest, (named, of_named))
        })
        .collect())
}

/// Reads an answer: log-probability and rank of the token, token and log-probability of each of the
/// likeliest, log-probability and rank of each named token.
fn row_of(
    answer: &[u32],
    question: &Question<'_>,
    likeliest: &[u32],
    (named, of_named): (&[u32], &[u32]),
) -> LogprobRow {
    let mut entries = vec![(question.token, logprob(answer[0]), answer[1])];
    for (pair, rank) in likeliest.chunks_exact(2).zip(1..).filter(|(pair, _)| pair[0] != NONE) {
        entries.push((pair[0], logprob(pair[1]), rank));
    }
    for (&id, pair) in named.iter().zip(of_named.chunks_exact(2)) {
        if !entries.iter().any(|(there, ..)| *there == id) {
            entries.push((id, logprob(pair[0]), pair[1]));
        }
    }
    LogprobRow { entries }
}

/// Returns the log-probability of a kernel's answer, where a very low number stands for −∞.
fn logprob(bits: u32) -> f32 {
    let logprob = f32::from_bits(bits);
    if logprob < MASKED / 2.0 { f32::NEG_INFINITY } else { logprob }
}

#[cube(launch_unchecked)]
fn tell_kernel(
    logits: &[f32],
    questions: &[u32],
    names: &[u32],
    answers: &mut [u32],
    count: usize,
    vocab: usize,
    stride: usize,
    answer_stride: usize,
) {
    let question = CUBE_POS;
    if question >= count {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let of = question * QUESTION_WORDS;
    let row = questions[of] as usize * stride;
    let token = questions[of + 1] as usize;
    let k = questions[of + 2] as usize;
    let first_name = questions[of + 3] as usize;
    let num_names = questions[of + 4] as usize;
    let answer = question * answer_stride;

    let mut scratch = Scratch::new();
    let first = f32::MAX.runtime();
    let (max, _) = next_likeliest(logits, row, vocab, &mut scratch, first, 0u32.runtime());
    let mut sum = 0.0f32.runtime();
    let mut id = unit;
    while id < vocab {
        sum += (logits[row + id] - max).exp();
        id += UNITS;
    }
    let normaliser = max + scratch.sum(sum).ln();

    let asked = logits[row + token];
    let rank = not_below(logits, row, vocab, &mut scratch, asked);
    if unit == 0 {
        answers[answer] = u32::reinterpret(asked - normaliser);
        answers[answer + 1] = rank;
    }
    let mut last = f32::MAX.runtime();
    let mut last_id = 0u32.runtime();
    for i in 0..k {
        let (logit, id) = next_likeliest(logits, row, vocab, &mut scratch, last, last_id);
        last = logit;
        last_id = id;
        if unit == 0 {
            answers[answer + 2 + 2 * i] = id;
            answers[answer + 3 + 2 * i] = u32::reinterpret(logit - normaliser);
        }
    }
    for i in 0..num_names {
        let named = logits[row + names[first_name + i] as usize];
        let rank = not_below(logits, row, vocab, &mut scratch, named);
        if unit == 0 {
            answers[answer + 2 + 2 * (k + i)] = u32::reinterpret(named - normaliser);
            answers[answer + 3 + 2 * (k + i)] = rank;
        }
    }
}

/// Returns the likeliest token after one with logit `last` and id `last_id`: less likely, or as
/// likely with a higher id. Returns [`NONE`] where there is none.
#[cube]
fn next_likeliest(
    logits: &[f32],
    row: usize,
    vocab: usize,
    scratch: &mut Scratch,
    last: f32,
    last_id: u32,
) -> (f32, u32) {
    let mut best = MASKED.runtime();
    let mut best_id = NONE.runtime();
    let mut id = UNIT_POS as usize;
    while id < vocab {
        let logit = max(logits[row + id], MASKED.runtime());
        let comes_after = logit < last || (logit == last && id as u32 > last_id);
        if comes_after && (logit > best || best_id == NONE) {
            best = logit;
            best_id = id as u32;
        }
        id += UNITS;
    }
    scratch.best(best, best_id)
}

/// Returns how many tokens are at least as likely.
#[cube]
fn not_below(logits: &[f32], row: usize, vocab: usize, scratch: &mut Scratch, logit: f32) -> u32 {
    let mut count = 0.0f32.runtime();
    let mut id = UNIT_POS as usize;
    while id < vocab {
        if logits[row + id] >= logit {
            count += 1.0f32;
        }
        id += UNITS;
    }
    u32::cast_from(scratch.sum(count))
}
