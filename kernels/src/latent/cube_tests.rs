//! On a GPU: agreement with the reference, and with each token alone, byte by byte.

use burn::tensor::Device;

use super::reference::{normed, product, rotated};
use super::tests::{EPS, Layer, SIZES, table, values as noise};
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values, vector};
use crate::{KernelError, WeightDtype};

fn queries(layer: &Layer, q: &[f32], positions: &[u32], device: &Device) -> Vec<f32> {
    let Sizes { heads, nope, rope, .. } = layer.sizes;
    let q = tensor(q, heads * (nope + rope), device);
    values(latent_queries(q, &layer.projections, positions, &layer.table))
}

fn expanded(layer: &Layer, latents: &[f32], device: &Device) -> Vec<f32> {
    let Sizes { heads, rank, .. } = layer.sizes;
    values(latent_values(tensor(latents, heads * rank, device), &layer.projections))
}

#[test]
fn projected_heads_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (sizes, dtype, tokens) in [
        (SIZES[0], WeightDtype::F32, 5),
        (SIZES[1], WeightDtype::F32, 60),
        (SIZES[2], WeightDtype::Bf16, 40),
        (SIZES[3], WeightDtype::Bf16, 2),
    ] {
        let Sizes { heads, nope, rope, rank, value } = sizes;
        let layer = Layer::on(sizes, dtype, &device);
        let positions: Vec<u32> = (0..tokens as u32).map(|token| token * 7 % 64).collect();
        let q = noise(tokens * heads * (nope + rope), 7);
        let out = queries(&layer, &q, &positions, &device);
        let what = format!("{sizes:?}");
        for (i, (out, q)) in
            out.chunks_exact(rank + rope).zip(q.chunks_exact(nope + rope)).enumerate()
        {
            let exact = product(&layer.keys[i % heads], &q[..nope]);
            let size = exact.iter().fold(1.0_f64, |most, (_, size)| most.max(*size));
            let exact: Vec<f64> = exact.into_iter().map(|(x, _)| x).collect();
            assert_near(&out[..rank], &exact, 1e-5 * size, &what);
            assert_near(&out[rank..], &rotated(&q[nope..], positions[i / heads]), 1e-5, &what);
        }
        let latents = noise(tokens * heads * rank, 8);
        let out = expanded(&layer, &latents, &device);
        for (i, (out, latent)) in
            out.chunks_exact(value).zip(latents.chunks_exact(rank)).enumerate()
        {
            let exact = product(&layer.values[i % heads], latent);
            let size = exact.iter().fold(1.0_f64, |most, (_, size)| most.max(*size));
            let exact: Vec<f64> = exact.into_iter().map(|(x, _)| x).collect();
            assert_near(out, &exact, 1e-5 * size, &what);
        }
    }
}

#[test]
fn keys_are_normalised_and_rotated() {
    let Some(device) = test_device() else { return };
    for Sizes { rope, rank, .. } in SIZES {
        let (width, positions) = (rank + rope, [3u32, 0, 63, 17, 3]);
        let kv = noise(positions.len() * width, 5);
        let weight = noise(rank, 6);
        let norm = LatentNorm { weight: vector(&weight, &device), eps: EPS };
        let keys =
            latent_keys(tensor(&kv, width, &device), &norm, &positions, &table(rope, &device));
        for ((out, kv), position) in
            values(keys).chunks_exact(width).zip(kv.chunks_exact(width)).zip(positions)
        {
            let exact =
                [normed(&kv[..rank], &weight, EPS), rotated(&kv[rank..], position)].concat();
            assert_near(out, &exact, 1e-5 * 4.0, &format!("{rank} + {rope}"));
        }
    }
}

/// A token has the same bytes alone and in a batch of any size.
#[test]
fn a_token_does_not_depend_on_its_batch() {
    let Some(device) = test_device() else { return };
    for (sizes, tokens) in [(SIZES[0], 3), (SIZES[0], 61), (SIZES[2], 40)] {
        let Sizes { heads, nope, rope, rank, value } = sizes;
        let layer = Layer::on(sizes, WeightDtype::Bf16, &device);
        let positions: Vec<u32> = (0..tokens as u32).collect();
        let q = noise(tokens * heads * (nope + rope), 7);
        let latents = noise(tokens * heads * rank, 8);
        let (all_q, all_v) =
            (queries(&layer, &q, &positions, &device), expanded(&layer, &latents, &device));
        for t in [0, tokens / 2, tokens - 1] {
            let of =
                |x: &[f32], width: usize| x[t * heads * width..(t + 1) * heads * width].to_vec();
            let one = queries(&layer, &of(&q, nope + rope), &positions[t..=t], &device);
            assert!(bits(&one) == bits(&of(&all_q, rank + rope)), "{sizes:?}");
            let one = expanded(&layer, &of(&latents, rank), &device);
            assert!(bits(&one) == bits(&of(&all_v, value)), "{sizes:?}");
        }
    }
}

#[test]
fn an_empty_batch_is_accepted() {
    let Some(device) = test_device() else { return };
    let layer = Layer::on(SIZES[0], WeightDtype::F32, &device);
    assert!(queries(&layer, &[], &[], &device).is_empty());
    assert!(expanded(&layer, &[], &device).is_empty());
}

#[test]
fn matrices_on_several_devices_are_refused() {
    let Some(device) = test_device() else { return };
    let of = |outputs: usize, inputs: usize, device: &Device| {
        super::tests::weight(&noise(outputs * inputs, 1), inputs, WeightDtype::F32, device)
    };
    let (keys, values) = (vec![of(4, 3, &device)], vec![of(2, 4, &Device::flex())]);
    let error = LatentProjections::new(keys, values, 2).unwrap_err();
    assert!(matches!(error, KernelError::PartsDiffer { .. }), "{error}");
}
