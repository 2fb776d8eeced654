//! Guesses in a step: they are made before it, verified in it, and counted after it.

use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::{
        drafts::verify::num_valid_draws,
        request::{
            ids::TokenId,
            outputs::{DraftCounts, RequestOutput},
        },
    },
    ports::ExecuteError,
};
use playhouse_kernels::{profile::timed, select_rows};

use super::{HiddenStates, ModelRunner};
use crate::{
    executor::{
        batch::{Chunk, RaggedBatch},
        drafters::{Computed, Wanted},
    },
    model::HeadInput,
};

impl ModelRunner {
    /// Guesses the next tokens of the requests that have places for guesses: the tokens that a
    /// constraint forces, or else those of the drafter.
    pub(super) fn guess(&mut self, ragged: &mut RaggedBatch) -> Result<(), ExecuteError> {
        if ragged.chunks.iter().all(|chunk| chunk.num_places == 0) || self.drafts.is_off() {
            return Ok(());
        }
        timed("drafts", || {
            let mut open = Vec::new();
            for index in 0..ragged.chunks.len() {
                let chunk = ragged.chunks[index];
                if chunk.num_places == 0 {
                    continue;
                }
                let num_forced = self.force(&chunk)?;
                ragged.chunks[index].num_guesses = num_forced;
                if num_forced == 0 {
                    open.push(index);
                }
            }
            self.propose(ragged, &open)
        })
    }

    /// Guesses the tokens that a constraint forces. Returns their number.
    fn force(&mut self, chunk: &Chunk) -> Result<usize, ExecuteError> {
        let most = self.drafts.most_forced(chunk.num_places);
        let sources = self.constraints.sources(&self.model);
        let sequence = self.batch.sequence_mut(chunk)?;
        if chunk.end != sequence.num_known() {
            let what = format!("request {} has guesses before its last token", chunk.request);
            return Err(ExecuteError::InvalidStep(what));
        }
        let forced = match most {
            0 => Vec::new(),
            _ => sequence.forced_tokens(sources, most),
        };
        sequence.guess(&forced);
        sequence.guessing.begin(!forced.is_empty());
        Ok(forced.len())
    }

    /// Lets the drafter guess for the chunks of these indices.
    fn propose(&mut self, ragged: &mut RaggedBatch, open: &[usize]) -> Result<(), ExecuteError> {
        let (mut wanted, mut places, mut is_try) = (Vec::new(), Vec::new(), false);
        for &index in open {
            let chunk = &ragged.chunks[index];
            let sequence = self.batch.sequence(chunk)?;
            let most = self.drafts.most_guesses(sequence, chunk.num_places);
            if most > 0 {
                is_try |= sequence.guessing.is_try();
                wanted.push(Wanted::new(sequence, most));
                places.push(index);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let time = self.drafts.propose(&mut wanted)?;
        let is_reading = wanted.iter().any(|wanted| wanted.is_reading);
        // The borrow of the sequences ends here.
        let made = wanted.into_iter().map(|wanted| {
            let num_missing = wanted.most.saturating_sub(wanted.guesses.len());
            (wanted.guesses, if wanted.is_reading { 0 } else { num_missing })
        });
        let made: Vec<(Vec<TokenId>, usize)> = made.collect();
        let has_guesses = made.iter().any(|(guesses, _)| !guesses.is_empty());
        // All requests of the step wait for it, also while a text is only read.
        if is_try {
            self.drafts.shared.learn_try(micros(begun.elapsed()));
        }
        if has_guesses || !is_reading {
            self.drafts.cost.learn_guesses(time.num_guesses, micros(time.time));
        }
        for (index, (guesses, num_unfilled)) in places.into_iter().zip(made) {
            let chunk = &mut ragged.chunks[index];
            // A drafter may guess too much, and tokens that the model does not have.
            let is_known = |token: &&TokenId| (**token as usize) < self.model.vocab_size;
            let num_guesses = guesses.iter().take(chunk.num_places).take_while(is_known).count();
            chunk.num_guesses = num_guesses;
            let sequence = self.batch.sequence_mut(chunk)?;
            sequence.guess(&guesses[..num_guesses]);
            sequence.guessing.leave_unfilled(num_unfilled);
            sequence.guessing.end_try();
        }
        Ok(())
    }

    /// Removes the draws after wrong guesses, and counts the right ones.
    pub(super) fn verify(
        &mut self,
        chunks: &[Chunk],
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        for (chunk, output) in chunks.iter().zip(outputs) {
            if chunk.num_places == 0 {
                continue;
            }
            let sequence = self.batch.sequence_mut(chunk)?;
            let draws = output.produced.tokens().iter().map(|token| token.token_id);
            let draws: Vec<TokenId> = draws.collect();
            let num_valid = num_valid_draws(sequence.guesses(), &draws);
            output.produced.truncate(num_valid);
            output.drafts = DraftCounts {
                num_drafted: chunk.num_guesses as u32,
                num_accepted: num_valid.saturating_sub(1) as u32,
                num_wanted: 0,
            };
            sequence.guessing.learn(&output.drafts, &mut self.drafts.shared);
        }
        Ok(())
    }

    /// Returns the hidden states that the drafter reads.
    pub(super) fn states_for_drafter(&self, states: HiddenStates) -> Vec<Tensor<2>> {
        match self.drafts.input() {
            None => Vec::new(),
            Some(HeadInput::Last) => vec![states.last],
            Some(HeadInput::BeforeLayers(_)) => states.inputs,
        }
    }

    /// Lets the drafter read the hidden states of the tokens that a step computed, without those of
    /// wrong guesses.
    pub(super) fn read_states(
        &mut self,
        ragged: &RaggedBatch,
        states: Vec<Tensor<2>>,
    ) -> Result<(), ExecuteError> {
        if states.is_empty() {
            return Ok(());
        }
        let (mut rows, mut parts) = (Vec::new(), Vec::new());
        for (index, chunk) in ragged.chunks.iter().enumerate() {
            let sequence = self.batch.sequence(chunk)?;
            let num_tokens = sequence.num_computed().saturating_sub(chunk.start);
            if sequence.request.sampling().is_some() && num_tokens > 0 {
                let first = ragged.groups[0].query_start_loc[index];
                rows.extend(first..first + num_tokens as u32);
                parts.push((sequence, chunk.start, num_tokens));
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let data = self.threads.run(|| {
            let of_rows = states.into_iter().map(|states| select_rows(states, &rows));
            Tensor::cat(of_rows.collect(), 1).into_data()
        });
        let values: Vec<f32> =
            data.try_to_vec().map_err(|error| ExecuteError::Device(format!("{error:?}")))?;
        let (width, mut rest) = (values.len() / rows.len(), &values[..]);
        let computed = parts.into_iter().map(|(sequence, start, num_tokens)| {
            let (rows, others) = rest.split_at(num_tokens * width);
            rest = others;
            Computed { sequence, start, rows }
        });
        let computed: Vec<Computed<'_>> = computed.collect();
        timed("drafts", || self.drafts.read(&computed))
    }

    /// Tells the scheduler how many guesses the next steps should verify.
    pub(super) fn ask_for_places(
        &mut self,
        chunks: &[Chunk],
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        if self.drafts.is_off() {
            return Ok(());
        }
        let num_drawing = outputs.iter().filter(|output| !output.produced.tokens().is_empty());
        let num_drawing = num_drawing.count();
        for (chunk, output) in chunks.iter().zip(outputs) {
            if !output.produced.tokens().is_empty() {
                let sequence = self.batch.sequence_mut(chunk)?;
                let num_wanted = self.drafts.num_wanted(sequence, num_drawing);
                output.drafts.num_wanted = num_wanted as u32;
            }
        }
        Ok(())
    }

    /// Learns the time of a step with these results, which began `pause` after the last one. Each
    /// step has such a pause, so guesses save it, too. A longer one than the step itself is a wait
    /// for requests.
    pub(super) fn learn_time(
        &mut self,
        ragged: &RaggedBatch,
        outputs: &[RequestOutput],
        elapsed: Duration,
        pause: Duration,
    ) {
        if self.drafts.is_off() {
            return;
        }
        let elapsed = if pause < elapsed { elapsed + pause } else { elapsed };
        self.drafts.shared.learn_step(micros(elapsed));
        let drawing = outputs.iter().filter(|output| !output.produced.tokens().is_empty());
        let num_draws = drawing.map(|output| 1 + output.drafts.num_drafted as usize).sum();
        let num_others = ragged.token_ids.len().saturating_sub(num_draws);
        self.drafts.cost.learn(num_draws, num_others, micros(elapsed));
    }
}

fn micros(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1e6
}
