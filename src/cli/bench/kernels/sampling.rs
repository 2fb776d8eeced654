//! The draw of a token.

use std::hint::black_box;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::sampling::{SamplingRow, SamplingScratch, sample, sample_tensor};

use super::measure::{Bench, MeasureError, Rate, Work};

/// Measures the draw of a token among `vocab`.
///
/// # Errors
/// The device's errors.
pub(super) fn measure(bench: &Bench, vocab: usize, temperature: f32) -> Result<Rate, MeasureError> {
    // Peaked like a language model's logits.
    let peak = |i: usize| 8.0 * ((i * i % 7919) as f32 * 0.11).sin();
    let logits: Vec<f32> = (0..vocab).map(peak).collect();
    let row = SamplingRow { temperature, ..SamplingRow::default() };
    let work = Work { bytes: size_of_val(logits.as_slice()) as f64, flops: 0.0 };
    if bench.device == Device::flex() {
        let (mut scratch, mut work_row) = (SamplingScratch::default(), logits.clone());
        return Ok(bench.measure(work, || {
            work_row.copy_from_slice(&logits);
            // These logits are finite and nothing is masked, so there is always a token.
            drop(black_box(sample(&mut work_row, &row, &mut scratch)));
            None
        })?);
    }
    // Including the copy of the token to the host.
    let shape = [1, logits.len()];
    let logits = Tensor::<2>::from_data(TensorData::new(logits, shape), &bench.device);
    let rows = std::slice::from_ref(&row);
    let mut sampled = Vec::new();
    sample_tensor(logits.clone(), rows, &mut sampled)?;
    Ok(bench.measure(work, || {
        drop(black_box(sample_tensor(logits.clone(), rows, &mut sampled)));
        None
    })?)
}
