//! The rows of n-grams in a table: HF `Qwen4ExpTextNGramEmbedding`.

use crate::model::ModelError;
use crate::model::config::NgramConfig;
use crate::model::weight_loader::WeightLoader;
use crate::weights::WeightsError;

/// The tensors that a checkpoint may have. Otherwise their numbers follow from the config.
pub(super) const MULTIPLIERS: &str = "layer_multipliers";
pub(super) const VOCAB_SIZES: &str = "ngram_heads_vocab_sizes";
pub(super) const OFFSETS: &str = "ngram_heads_offsets";

/// The hashes of one layer.
#[derive(Debug)]
pub(super) struct NgramHash {
    heads_per_size: usize,
    /// The factor of each token, the newest first: `[size]`.
    multipliers: Vec<i64>,
    /// The rows of each embedding.
    vocab_sizes: Vec<i64>,
    /// The first row of each embedding.
    offsets: Vec<i64>,
    end_token: i64,
}

impl NgramHash {
    fn of(config: &NgramConfig) -> Self {
        Self {
            heads_per_size: config.heads_per_size,
            multipliers: config.multipliers.clone(),
            vocab_sizes: config.vocab_sizes.clone(),
            offsets: config.offsets(),
            end_token: config.end_token.into(),
        }
    }

    /// Loads the numbers that the checkpoint has in `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &NgramConfig,
    ) -> Result<Self, ModelError> {
        let mut hash = Self::of(config);
        let name = |tensor: &str| format!("{module}.{tensor}");
        for (tensor, numbers) in [
            (MULTIPLIERS, &mut hash.multipliers),
            (VOCAB_SIZES, &mut hash.vocab_sizes),
            (OFFSETS, &mut hash.offsets),
        ] {
            let name = name(tensor);
            if loader.has(&name) {
                *numbers = loader.integers(&name, numbers.len())?;
            }
        }
        let rows = config.rows as i64;
        let fits = |(size, offset): (&i64, &i64)| {
            *size > 0 && *offset >= 0 && offset.checked_add(*size).is_some_and(|end| end <= rows)
        };
        match hash.vocab_sizes.iter().zip(&hash.offsets).all(fits) {
            true => Ok(hash),
            false => {
                let tensor = name(VOCAB_SIZES);
                let reason = format!("sizes beyond the {rows} rows of the table");
                Err(WeightsError::Value { path: loader.path_of(&tensor), tensor, reason }.into())
            }
        }
    }

    /// Returns the rows of the embeddings of each token, `[num_tokens, num_heads]`. `numbers` has
    /// each token and those before it, the newest first: `[num_tokens, size]`. They are ids plus
    /// one. A 0 is no token.
    pub(super) fn rows(&self, numbers: &[u32]) -> Vec<u32> {
        let size = self.multipliers.len();
        let mut rows = Vec::with_capacity(numbers.len() / size * self.vocab_sizes.len());
        numbers.chunks_exact(size).for_each(|numbers| self.add_rows(numbers, &mut rows));
        rows
    }

    /// Adds the rows of one token.
    fn add_rows(&self, numbers: &[u32], rows: &mut Vec<u32>) {
        let (mut mixed, mut is_ended) = (0, false);
        for (distance, (number, multiplier)) in numbers.iter().zip(&self.multipliers).enumerate() {
            let id = i64::from(*number) - 1;
            // The tokens of an earlier text count as its end.
            is_ended |= distance > 0 && (id < 0 || id == self.end_token);
            let id = if is_ended { self.end_token } else { id };
            mixed ^= id.wrapping_mul(*multiplier);
            let Some(shorter) = distance.checked_sub(1) else { continue };
            let heads = shorter * self.heads_per_size..distance * self.heads_per_size;
            let row = |head: usize| {
                (mixed.rem_euclid(self.vocab_sizes[head]) + self.offsets[head]) as u32
            };
            rows.extend(heads.map(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of transformers' class in the second layer of a model, for tokens of two texts.
    #[test]
    fn rows_are_those_of_transformers() {
        let config = NgramConfig {
            size: 3,
            heads_per_size: 2,
            width: 4,
            kernel: 4,
            channels: 8,
            multipliers: vec![
                17_237_745_666_423_273,
                2_619_768_721_783_435,
                15_090_836_525_362_811,
            ],
            vocab_sizes: vec![109, 113, 127, 131],
            rows: 480,
            num_parts: 1,
            end_token: 7,
        };
        let hash = NgramHash::of(&config);
        let tokens = [0, 0, 6, 4, 8, 10, 12, 512];
        let numbers: Vec<u32> =
            tokens.windows(3).flat_map(|window| window.iter().rev().copied()).collect();
        let expected = [
            [46, 133, 319, 413],
            [0, 112, 288, 388],
            [61, 196, 243, 422],
            [41, 117, 262, 460],
            [80, 125, 346, 454],
            [55, 204, 234, 461],
        ];
        assert_eq!(hash.rows(&numbers), expected.concat());
    }
}
