//! Generated weights: numbers of about the size of a model's weights, so that results are neither
//! zero nor infinite. A tensor's weights depend only on its name.

use std::hash::{DefaultHasher, Hash, Hasher};

use half::bf16;
use rayon::prelude::*;

use super::StoredDtype;

/// Elements that are generated at a time.
const CHUNK: usize = 1 << 16;

/// Returns the bytes of the tensor `name`. A matrix `[out, in]` keeps the variance of its inputs
/// (uniform, of variance `1 / in`). So do the matrices of a stack `[experts, out, in]`, and a
/// convolution `[channels, 1, taps]`, whose inputs are its taps. The weights of norms are 1, and
/// biases 0.
pub(super) fn bytes(name: &str, shape: &[usize], dtype: StoredDtype) -> Vec<u8> {
    let size = if dtype == StoredDtype::F32 { 4 } else { 2 };
    let mut bytes = vec![0; shape.iter().product::<usize>() * size];
    let &[_, .., inputs] = shape else {
        if name.contains("norm") {
            bytes.chunks_exact_mut(size).for_each(|element| write(element, 1.0, dtype));
        }
        return bytes;
    };
    let most = (3.0 / inputs as f32).sqrt();
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let seed = hasher.finish();
    bytes.par_chunks_mut(CHUNK * size).enumerate().for_each(|(chunk, bytes)| {
        for (i, element) in bytes.chunks_exact_mut(size).enumerate() {
            let random = split_mix(seed.wrapping_add((chunk * CHUNK + i) as u64));
            // 24 bits, in -1..1.
            let uniform = (random >> 40) as f32 * (2.0 / (1u64 << 24) as f32) - 1.0;
            write(element, uniform * most, dtype);
        }
    });
    bytes
}

fn write(element: &mut [u8], x: f32, dtype: StoredDtype) {
    match dtype {
        StoredDtype::F32 => element.copy_from_slice(&x.to_le_bytes()),
        StoredDtype::F16 => element.copy_from_slice(&half::f16::from_f32(x).to_le_bytes()),
        StoredDtype::Bf16 => element.copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
    }
}

/// Returns output `n` of SplitMix64 (Steele et al. 2014).
fn split_mix(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str, shape: &[usize]) -> Vec<f32> {
        let bytes = bytes(name, shape, StoredDtype::F32);
        bytes.as_chunks::<4>().0.iter().map(|&element| f32::from_le_bytes(element)).collect()
    }

    #[test]
    fn a_matrix_keeps_the_variance_of_its_inputs() {
        let x = values("layers.0.mlp.up_proj.weight", &[500, 400]);
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        let variance = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
        assert!(mean.abs() < 1e-3, "{mean}");
        assert!((variance * 400.0 - 1.0).abs() < 0.02, "{variance}");
    }

    /// With zeros, all results of the layers behind them would be those of zeros.
    #[test]
    fn convolutions_and_stacks_of_matrices_keep_it_too() {
        for (name, shape, inputs) in [
            ("backbone.layers.0.mixer.conv1d.weight", [6_000, 1, 4], 4.0),
            ("model.layers.0.mlp.experts.gate_up_proj", [4, 60, 100], 100.0),
        ] {
            let x = values(name, &shape);
            let variance = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
            assert!((variance * inputs - 1.0).abs() < 0.05, "{name}: {variance}");
        }
    }

    #[test]
    fn tensors_are_the_same_every_time_and_differ_from_each_other() {
        assert_eq!(values("a", &[8, 8]), values("a", &[8, 8]));
        assert_ne!(values("a", &[8, 8]), values("b", &[8, 8]));
        assert_eq!(values("layers.0.input_layernorm.weight", &[3]), [1.0; 3]);
        assert_eq!(values("layers.0.self_attn.q_proj.bias", &[3]), [0.0; 3]);
    }
}
