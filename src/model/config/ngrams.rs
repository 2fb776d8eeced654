//! Embeddings of n-grams in some layers: HF `Qwen4ExpTextPLELayer`.
//!
//! A token has an embedding for each n-gram that ends with it, and several for each length. Each of
//! them has a part of one table. Its row there is a hash of the n-gram modulo a prime number, so
//! that two n-grams hardly collide in all of them.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_kernels::CausalConv;

use super::{ConfigError, Fields, SIZE_MAX};

/// The fields that errors name more than once.
const LAYERS: &str = "ple_layer_ids";
const SIZE: &str = "ngram_size";
const HEADS: &str = "heads_per_ngram";
const BASE: &str = "ngram_vocab_size_base";

/// Limits far above any real number, which prevent absurd allocations and long searches.
const NGRAM_MAX: usize = 16;
const HEADS_MAX: usize = 256;
const TAPS_MAX: usize = 64;
const PARTS_MAX: usize = 1 << 16;
const BASE_MAX: i64 = 1 << 31;

/// The number between the seeds of two layers.
const LAYER_STEP: u64 = 10_007;
/// The constants of splitmix64 (<https://doi.org/10.1145/2714064.2660195>).
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
const FIRST_FACTOR: u64 = 0xBF58_476D_1CE4_E5B9;
const SECOND_FACTOR: u64 = 0x94D0_49BB_1331_11EB;

/// The embeddings of n-grams in one layer, and the convolution over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NgramConfig {
    /// Tokens of the longest n-gram; at least 2. It is also the distance between two taps.
    pub size: usize,
    /// Embeddings for each length of n-grams.
    pub heads_per_size: usize,
    /// Elements of a token's embeddings; a multiple of their number.
    pub width: usize,
    /// Taps of the convolution.
    pub kernel: usize,
    /// Channels of the convolution: the elements of all residual streams.
    pub channels: usize,
    /// The factor of each token in a hash, the newest first: `[size]`.
    pub multipliers: Vec<i64>,
    /// The rows of each embedding, those of the shortest n-grams first:
    /// `[(size - 1) * heads_per_size]`.
    pub vocab_sizes: Vec<i64>,
    /// The rows of the table. The last ones may be unused.
    pub rows: usize,
    /// The number of parts in which a checkpoint has the table.
    pub num_parts: usize,
    /// The token that ends a text. No n-gram reaches beyond it.
    pub end_token: u32,
}

impl NgramConfig {
    /// Reads the embeddings of each layer that has some, by the index of the layer. `channels` are
    /// the elements of all residual streams.
    pub(crate) fn of_layers(
        fields: &Fields,
        num_layers: usize,
        channels: usize,
    ) -> Result<BTreeMap<usize, Self>, ConfigError> {
        let layers: BTreeSet<usize> = fields.indices(LAYERS)?.into_iter().collect();
        if layers.iter().any(|layer| !(1..=num_layers).contains(layer)) {
            let expected = format!("a list of layers from 1 to {num_layers} (num_hidden_layers)");
            return Err(fields.invalid(LAYERS, &expected));
        }
        if layers.is_empty() {
            return Ok(BTreeMap::new());
        }
        let plain = Self::read(fields, channels)?;
        let base = match fields.integer(BASE)? {
            None => 20_000_000,
            Some(base) if (1..=BASE_MAX).contains(&base) => base,
            Some(_) => {
                return Err(fields.invalid(BASE, &format!("an integer from 1 to {BASE_MAX}")));
            }
        };
        // The check comes before the search, which takes long for many large primes.
        let too_many = || {
            let expected = format!("embeddings of at most {} rows in a layer", u32::MAX);
            fields.invalid(BASE, &expected)
        };
        if base.saturating_mul(plain.num_heads() as i64) > i64::from(u32::MAX) {
            return Err(too_many());
        }
        let divisor = fields.size("make_ngram_vocab_size_divisible_by")?.unwrap_or(128);
        let seed = fields.integer("seed")?.unwrap_or(1_234);
        let vocab_size = fields.required_size("vocab_size")?;
        let mut last = base - 1;
        let mut of_layer = |order: usize| {
            let primes = std::iter::repeat_with(|| {
                last = prime_after(last);
                last
            });
            let vocab_sizes: Vec<i64> = primes.take(plain.num_heads()).collect();
            let rows = vocab_sizes.iter().map(|size| *size as usize).sum::<usize>();
            let rows = rows.next_multiple_of(divisor);
            if u32::try_from(rows).is_err() {
                return Err(too_many());
            }
            let multipliers = multipliers(vocab_size, plain.size, order, seed);
            Ok(Self { multipliers, vocab_sizes, rows, ..plain.clone() })
        };
        let in_order = layers.iter().enumerate();
        in_order.map(|(order, layer)| of_layer(order).map(|it| (layer - 1, it))).collect()
    }

    /// Reads the fields that all layers share.
    fn read(fields: &Fields, channels: usize) -> Result<Self, ConfigError> {
        let most = |field: &str, default: usize, most: usize| match fields.size(field)? {
            Some(size) if size > most => {
                Err(fields.invalid(field, &format!("an integer from 1 to {most}")))
            }
            size => Ok(size.unwrap_or(default)),
        };
        let size = most(SIZE, 3, NGRAM_MAX)?;
        if size < 2 {
            return Err(fields.invalid(SIZE, &format!("an integer from 2 to {NGRAM_MAX}")));
        }
        let heads_per_size = most(HEADS, 8, HEADS_MAX)?;
        let num_heads = (size - 1) * heads_per_size;
        let width = match fields.size("ple_embed_dim")? {
            Some(width) => width,
            None => fields.required_size("hidden_size")?,
        };
        if !width.is_multiple_of(num_heads) {
            let expected =
                format!("a multiple of {num_heads}: heads_per_ngram for each length of n-grams");
            return Err(fields.invalid("ple_embed_dim", &expected));
        }
        let kernel = most("ple_conv_kernel_size", 4, TAPS_MAX)?;
        let end_token = fields.token_ids("eos_token_id")?.first().copied().ok_or_else(|| {
            fields.missing("eos_token_id", "a token id, because no n-gram reaches beyond it")
        })?;
        let config = Self {
            size,
            heads_per_size,
            width,
            kernel,
            channels,
            multipliers: Vec::new(),
            vocab_sizes: Vec::new(),
            rows: 0,
            num_parts: most("split_ngram_parts", 512, PARTS_MAX)?,
            end_token,
        };
        match config.state_len() > SIZE_MAX {
            true => {
                let expected = format!("a window of at most {SIZE_MAX} numbers in a layer");
                Err(fields.invalid("ple_conv_kernel_size", &expected))
            }
            false => Ok(config),
        }
    }

    /// Returns the number of a token's embeddings.
    pub(crate) fn num_heads(&self) -> usize {
        (self.size - 1) * self.heads_per_size
    }

    /// Returns the elements of an embedding.
    pub(crate) fn head_width(&self) -> usize {
        self.width / self.num_heads()
    }

    /// Returns the tokens from the oldest tap of the convolution to the newest one.
    pub(crate) fn reach(&self) -> usize {
        (self.kernel - 1) * self.size + 1
    }

    /// Returns the f32 of the window of token ids.
    pub(crate) fn history_len(&self) -> usize {
        CausalConv::state_len(self.size, self.size)
    }

    /// Returns the f32 of both windows of a sequence.
    pub(crate) fn state_len(&self) -> usize {
        self.history_len() + CausalConv::state_len(self.channels, self.reach())
    }

    /// Returns the first row of each embedding in the table.
    pub(crate) fn offsets(&self) -> Vec<i64> {
        let first = |next: &mut i64, size: &i64| {
            let first = *next;
            *next += size;
            Some(first)
        };
        self.vocab_sizes.iter().scan(0, first).collect()
    }

    /// Returns the rows of each part of the table in a checkpoint. As with `torch.chunk`, all parts
    /// but the last have the same number, and there may be fewer parts than asked for.
    pub(crate) fn parts(&self) -> Vec<usize> {
        let most = self.rows.div_ceil(self.num_parts);
        (0..self.rows).step_by(most).map(|first| most.min(self.rows - first)).collect()
    }
}

/// Returns the factors of hashes in the layer that is the `order`th with n-grams. The product of a
/// factor and a token id fits an i64.
fn multipliers(vocab_size: usize, size: usize, order: usize, seed: i64) -> Vec<i64> {
    let half = (i64::MAX as u64 / vocab_size as u64 / 2).max(1);
    let seed = (seed as u64).wrapping_add(LAYER_STEP * order as u64);
    let factor = |index: u64| {
        let mixed = split_mix(seed.wrapping_add(GAMMA.wrapping_mul(index)));
        (2 * (mixed % half) + 1) as i64
    };
    (1..=size as u64).map(factor).collect()
}

/// Returns the number that splitmix64 draws from a state.
fn split_mix(state: u64) -> u64 {
    let x = state.wrapping_add(GAMMA);
    let x = (x ^ (x >> 30)).wrapping_mul(FIRST_FACTOR);
    let x = (x ^ (x >> 27)).wrapping_mul(SECOND_FACTOR);
    x ^ (x >> 31)
}

/// Returns the smallest prime number above `number`.
fn prime_after(number: i64) -> i64 {
    let mut candidate = number + 1;
    while !is_prime(candidate) {
        candidate += 1;
    }
    candidate
}

fn is_prime(number: i64) -> bool {
    match number {
        ..2 => false,
        2 => true,
        _ if number % 2 == 0 => false,
        _ => (3..=number.isqrt()).step_by(2).all(|divisor| number % divisor != 0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file::fields;
    use super::*;

    /// The numbers of transformers' `_build_layer_multipliers`.
    #[test]
    fn factors_are_those_of_transformers() {
        for ((vocab, size, order, seed), expected) in [
            (
                (512, 3, 0, 1_234),
                &[4_295_158_889_763_781, 17_440_218_147_737_327, 1_270_917_961_434_445][..],
            ),
            ((248_320, 3, 2, 1_234), &[35_243_655_749_357, 23_198_521_423_797, 25_737_225_394_503]),
            ((512, 2, 1, -5), &[15_386_950_989_659_511, 1_563_216_486_317_337]),
        ] {
            assert_eq!(multipliers(vocab, size, order, seed), expected);
        }
    }

    #[test]
    fn primes_follow_each_other() {
        let after = |first| std::iter::successors(Some(first), |last| Some(prime_after(*last)));
        assert_eq!(Vec::from_iter(after(1).take(7)), [1, 2, 3, 5, 7, 11, 13]);
        assert_eq!(
            Vec::from_iter(after(19_999_999).skip(1).take(3)),
            [20_000_003, 20_000_023, 20_000_033]
        );
    }

    fn of_layers(changes: Value) -> Result<BTreeMap<usize, NgramConfig>, String> {
        let mut config = json!({
            "vocab_size": 512, "hidden_size": 8, "heads_per_ngram": 2, "eos_token_id": [7, 9],
            "ngram_vocab_size_base": 90, "make_ngram_vocab_size_divisible_by": 8,
            "ple_layer_ids": [4, 1, 4], "split_ngram_parts": 7,
        });
        for (field, value) in changes.as_object().unwrap() {
            config[field] = value.clone();
        }
        NgramConfig::of_layers(&fields(config), 4, 16).map_err(|error| error.to_string())
    }

    /// The sizes of transformers' `Qwen4ExpTextNGramEmbedding`.
    #[test]
    fn layers_have_primes_of_their_own() {
        let layers = of_layers(json!({})).unwrap();
        assert_eq!(Vec::from_iter(layers.keys().copied()), [0, 3]);
        let [first, second] = [&layers[&0], &layers[&3]];
        assert_eq!(first.vocab_sizes, [97, 101, 103, 107]);
        assert_eq!(second.vocab_sizes, [109, 113, 127, 131]);
        assert_eq!(second.offsets(), [0, 109, 222, 349]);
        assert_eq!((second.rows, second.end_token), (480, 7));
        assert_eq!(second.parts(), [69, 69, 69, 69, 69, 69, 66]);
        assert_ne!(first.multipliers, second.multipliers);
        let few = NgramConfig { rows: 10, num_parts: 4, ..first.clone() };
        assert_eq!(few.parts(), [3, 3, 3, 1]);
        let fewer = NgramConfig { rows: 9, num_parts: 6, ..few };
        assert_eq!(fewer.parts(), [2, 2, 2, 2, 1]);
    }

    #[test]
    fn windows_reach_over_the_distance_of_taps() {
        let config = &of_layers(json!({ "ple_conv_kernel_size": 3 })).unwrap()[&0];
        assert_eq!((config.reach(), config.history_len()), (7, 6));
        assert_eq!(config.state_len(), 6 + 16 * 6);
    }

    #[test]
    fn values_without_a_meaning_are_refused_by_name() {
        for (field, value) in [
            ("ple_layer_ids", json!([0])),
            ("ple_layer_ids", json!([5])),
            ("ngram_size", json!(1)),
            ("ngram_size", json!(17)),
            ("heads_per_ngram", json!(257)),
            ("ple_embed_dim", json!(6)),
            ("ple_conv_kernel_size", json!(65)),
            ("ngram_vocab_size_base", json!(0)),
            ("ngram_vocab_size_base", json!(1_i64 << 31)),
            ("split_ngram_parts", json!(1 << 17)),
            ("eos_token_id", json!(null)),
        ] {
            let error = of_layers(json!({ field: value.clone() })).unwrap_err();
            assert!(error.contains(field), "{field} {value}: {error}");
        }
        assert!(of_layers(json!({ "ple_layer_ids": null })).unwrap().is_empty());
        let many = json!({
            "ngram_vocab_size_base": 1 << 30, "heads_per_ngram": 256, "ple_embed_dim": 512,
        });
        assert!(of_layers(many).unwrap_err().contains("ngram_vocab_size_base"));
    }
}
