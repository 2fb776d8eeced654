//! The smallest code that runs a model: sequences with scattered blocks, stepped together or alone.

use std::sync::Arc;

use burn::tensor::Device;
use playhouse::model::{Adapters, EncoderOutput, Model, Positions, Step, StepMedia};
use playhouse_kernels::{AttentionMetadata, KvCache, KvDtype};

const BLOCK_SIZE: usize = 16;
/// A prime, so that the multiples of any number visit every block.
const NUM_BLOCKS: usize = 97;
const GREEDY_TOKENS: usize = 24;

pub(crate) struct Runner {
    model: Arc<Model>,
    kv_dtype: KvDtype,
    device: Device,
}

/// How the prompts are split.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Chunking {
    /// Each prompt alone, in one step.
    Whole,
    /// Each prompt alone, in chunks of so many tokens.
    Chunks(usize),
    /// All prompts in one batch, in chunks of different sizes, so that some decode while others
    /// prefill.
    Ragged,
}

/// A model's answer to one prompt.
pub(crate) struct Answer {
    /// Logits after each token of the prompt.
    pub(crate) prompt_rows: Vec<Vec<f32>>,
    pub(crate) greedy: Vec<u32>,
    /// The logits that each greedy token was chosen from.
    pub(crate) greedy_rows: Vec<Vec<f32>>,
}

impl Answer {
    /// Returns the bits of every logit.
    pub(crate) fn bits(&self) -> impl Iterator<Item = u32> {
        self.prompt_rows.iter().chain(&self.greedy_rows).flatten().map(|logit| logit.to_bits())
    }
}

struct Sequence {
    tokens: Vec<u32>,
    prompt_len: usize,
    blocks: Vec<u32>,
    /// The sound that it attends to.
    sound: Option<Arc<EncoderOutput>>,
    /// Logits after each computed token.
    rows: Vec<Vec<f32>>,
}

impl Runner {
    pub(crate) fn new(model: Arc<Model>, device: &Device) -> Self {
        Self { kv_dtype: model.dtype.into(), model, device: device.clone() }
    }

    /// Keeps keys and values in this format.
    pub(crate) fn with_kv_dtype(self, kv_dtype: KvDtype) -> Self {
        Self { kv_dtype, ..self }
    }

    /// Returns the answers to `prompts`, each followed by its greedy continuation.
    pub(crate) fn answer(&self, prompts: &[&[u32]], chunking: Chunking) -> Vec<Answer> {
        self.answer_about(prompts, &vec![None; prompts.len()], chunking)
    }

    /// Returns the same for prompts each of which attends to a sound.
    pub(crate) fn answer_about(
        &self,
        prompts: &[&[u32]],
        sounds: &[Option<Arc<EncoderOutput>>],
        chunking: Chunking,
    ) -> Vec<Answer> {
        let chunk = match chunking {
            Chunking::Whole => usize::MAX,
            Chunking::Chunks(size) => size,
            Chunking::Ragged => return self.run(prompts, sounds, &[5, 3, 1, 11]),
        };
        let alone = |(prompt, sound): (&&[u32], &Option<Arc<EncoderOutput>>)| {
            self.run(&[prompt], std::slice::from_ref(sound), &[chunk])
        };
        prompts.iter().zip(sounds).flat_map(alone).collect()
    }

    /// Runs all `prompts` together; the n-th advances by the n-th of `chunks` tokens a step.
    fn run(
        &self,
        prompts: &[&[u32]],
        sounds: &[Option<Arc<EncoderOutput>>],
        chunks: &[usize],
    ) -> Vec<Answer> {
        let shape = self.model.kv_cache_shape(NUM_BLOCKS, BLOCK_SIZE);
        let mut kv = KvCache::new(shape, self.kv_dtype, &self.device).unwrap();
        let mut sequences = sequences(prompts, sounds);
        while sequences.iter().any(|sequence| !sequence.is_done()) {
            let mut batch: Vec<_> = sequences
                .iter_mut()
                .zip(chunks.iter().cycle())
                .filter(|(sequence, _)| !sequence.is_done())
                .map(|(sequence, chunk)| {
                    let tokens = sequence.waiting().min(*chunk);
                    (sequence, tokens)
                })
                .collect();
            self.step(&mut batch, &mut kv);
        }
        sequences.into_iter().map(Sequence::into_answer).collect()
    }

    /// Computes the next tokens of each sequence: as many as stand beside it.
    fn step(&self, batch: &mut [(&mut Sequence, usize)], kv: &mut KvCache) {
        let mut token_ids = Vec::new();
        let mut meta = AttentionMetadata {
            query_start_loc: vec![0],
            seq_lens: Vec::new(),
            block_tables: Vec::new(),
            slot_mapping: Vec::new(),
            positions: Vec::new(),
            visible_ends: Vec::new(),
            num_guesses: Vec::new(),
        };
        for (sequence, tokens) in batch.iter() {
            let (start, end) = (sequence.rows.len(), sequence.rows.len() + tokens);
            token_ids.extend_from_slice(&sequence.tokens[start..end]);
            meta.positions.extend(start as u32..end as u32);
            meta.slot_mapping.extend((start..end).map(|position| sequence.slot(position)));
            meta.query_start_loc.push(token_ids.len() as u32);
            meta.seq_lens.push(end as u32);
            meta.block_tables.push(sequence.blocks[..end.div_ceil(BLOCK_SIZE)].to_vec());
        }
        meta.validate(kv.shape()).unwrap();
        let Model { backbone, lm_head, .. } = &*self.model;
        let attended: Vec<_> = batch.iter().map(|(sequence, _)| sequence.sound.clone()).collect();
        let attended = if attended.iter().any(Option::is_some) { attended } else { Vec::new() };
        let media = StepMedia { rows: Vec::new(), attended };
        let positions = Positions::of_text(&meta);
        let mut step = Step::new(&meta, kv).with_media(&media);
        let hidden =
            backbone.forward(backbone.embed(&token_ids, Adapters::none()), positions, &mut step);
        let rows: Vec<u32> = (0..token_ids.len() as u32).collect();
        let lm_head = lm_head.as_ref().unwrap();
        let logits = lm_head
            .logits(hidden, &rows, Adapters::none())
            .into_data()
            .try_to_vec::<f32>()
            .unwrap();
        let mut rows = logits.chunks(self.model.vocab_size);
        for (sequence, tokens) in batch {
            sequence.rows.extend(rows.by_ref().take(*tokens).map(<[f32]>::to_vec));
            sequence.pick();
        }
    }
}

/// Returns sequences for `prompts` whose blocks lie scattered over the arena.
fn sequences(prompts: &[&[u32]], sounds: &[Option<Arc<EncoderOutput>>]) -> Vec<Sequence> {
    let mut scattered = (1..NUM_BLOCKS as u32).map(|i| i * 36 % NUM_BLOCKS as u32);
    let new = |(prompt, sound): (&&[u32], &Option<Arc<EncoderOutput>>)| {
        let blocks = (prompt.len() + GREEDY_TOKENS).div_ceil(BLOCK_SIZE);
        Sequence {
            tokens: prompt.to_vec(),
            prompt_len: prompt.len(),
            blocks: scattered.by_ref().take(blocks).collect(),
            sound: sound.clone(),
            rows: Vec::new(),
        }
    };
    prompts.iter().zip(sounds).map(new).collect()
}

impl Sequence {
    /// Returns the number of tokens that are known but not computed.
    fn waiting(&self) -> usize {
        self.tokens.len() - self.rows.len()
    }

    fn is_done(&self) -> bool {
        self.tokens.len() == self.prompt_len + GREEDY_TOKENS
    }

    fn slot(&self, position: usize) -> u32 {
        self.blocks[position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32
    }

    /// Appends the likeliest token if all known tokens are computed.
    fn pick(&mut self) {
        if self.waiting() == 0 {
            let row = self.rows.last().unwrap();
            let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
            self.tokens.push(best as u32);
        }
    }

    fn into_answer(mut self) -> Answer {
        let greedy_rows = self.rows.split_off(self.prompt_len - 1);
        let mut prompt_rows = self.rows;
        prompt_rows.push(greedy_rows[0].clone());
        Answer { prompt_rows, greedy: self.tokens.split_off(self.prompt_len), greedy_rows }
    }
}

/// Returns the log-probabilities of one row of logits.
pub(crate) fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let logits: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| (x - max).exp()).sum();
    logits.iter().map(|x| x - max - sum.ln()).collect()
}
