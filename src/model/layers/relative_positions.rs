//! The biases of scores by relative positions: HF `T5Attention.compute_bias`, and
//! `MPNetEncoder.compute_position_bias` (<https://arxiv.org/abs/1910.10683>).

use playhouse_kernels::DistanceBiases;

use crate::model::ModelError;
use crate::model::config::DistanceBiasConfig;
use crate::model::weight_loader::{WeightLoader, refused};

/// Loads the table `{module}.weight`, `[num_buckets, num_heads]`, for sequences of at most
/// `positions` tokens.
pub(in crate::model) fn load(
    loader: &mut WeightLoader<'_>,
    config: DistanceBiasConfig,
    num_heads: usize,
    positions: usize,
) -> Result<DistanceBiases, ModelError> {
    let name = format!("{}.weight", config.module);
    // All layers share the table, which counts as loaded once with each of them.
    let table = loader.shared_values(&name, &[config.num_buckets, num_heads])?;
    let bias = |head: usize, distance: i64| table[bucket(config, distance) * num_heads + head];
    DistanceBiases::new(num_heads, positions, bias, loader.device()).map_err(refused(&name))
}

/// Returns the biases of ALiBi on both sides (<https://arxiv.org/abs/2310.19923>): a head's slope
/// times the distance, below zero.
pub(super) fn of_slopes(
    loader: &WeightLoader<'_>,
    slopes: &[f32],
    positions: usize,
) -> Result<DistanceBiases, ModelError> {
    let bias = |head: usize, distance: i64| {
        -slopes.get(head).copied().unwrap_or_default() * distance.unsigned_abs() as f32
    };
    let biases = DistanceBiases::new(slopes.len(), positions, bias, loader.device());
    biases.map_err(refused("the biases of ALiBi"))
}

/// Returns the bucket of a distance `j - i`. Half of the buckets are for keys after the query,
/// unless queries see only keys before them. Of a side's buckets, the first half has one distance
/// each, and the others have ranges that grow up to `max_distance`.
fn bucket(config: DistanceBiasConfig, distance: i64) -> usize {
    let of_side = if config.is_causal { config.num_buckets } else { config.num_buckets / 2 };
    let (first, distance) = match (config.is_causal, distance > 0) {
        (true, _) => (0, distance.min(0)),
        (false, true) => (of_side, distance),
        (false, false) => (0, distance),
    };
    let (distance, exact) = (distance.unsigned_abs() as usize, of_side / 2);
    if distance < exact {
        return first + distance;
    }
    // HF computes in float32, and rounds towards zero.
    let share = (distance as f32 / exact as f32).ln()
        / ((config.max_distance as f64 / exact as f64).ln() as f32);
    let large = exact + (share * (of_side - exact) as f32) as usize;
    first + large.min(of_side - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The buckets of transformers for 32 buckets and a largest distance of 128.
    #[test]
    fn buckets_are_those_of_transformers() {
        let config =
            DistanceBiasConfig { module: "", num_buckets: 32, max_distance: 128, is_causal: false };
        let buckets = [0, -1, -7, -8, -12, -20, -50, -127, -128, -4_000];
        let buckets = buckets.map(|distance| bucket(config, distance));
        assert_eq!(buckets, [0, 1, 7, 8, 9, 10, 13, 15, 15, 15]);
        assert_eq!([1, 8, 15, 16, 300].map(|d| bucket(config, d)), [17, 24, 25, 26, 31]);
        let config = DistanceBiasConfig { is_causal: true, ..config };
        let buckets = [0, -1, -15, -16, -17, -20, -31, -64, -100, -127, -128, -4_000, 5]
            .map(|distance| bucket(config, distance));
        assert_eq!(buckets, [0, 1, 15, 16, 16, 17, 21, 26, 30, 31, 31, 31, 0]);
    }
}
