//! The adapters of a batch, at one linear layer: eight of rank 16, whose rows take turns.

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{KernelError, LoraPair, LoraSegment, LoraWeights, WeightDtype, add_lora};

use super::measure::{Bench, MeasureError, Rate, Work};

const NUM_ADAPTERS: usize = 8;
const RANK: usize = 16;
/// Least bytes of the adapters that are read in turn.
const BYTES_MIN: usize = 128 << 20;

/// Measures the products of the adapters for the rows of `x`, added to the rows of `y`.
///
/// # Errors
/// Too little memory for the adapters, or the device's errors.
pub(super) fn measure(
    bench: &Bench,
    dtype: WeightDtype,
    x: &Tensor<2>,
    y: &Tensor<2>,
) -> Result<Rate, MeasureError> {
    let ([rows, inputs], [_, outputs]) = (x.dims(), y.dims());
    let mut sets = Vec::new();
    let mut bytes = 0;
    while bytes < BYTES_MIN {
        let set = adapters([outputs, inputs], dtype, &bench.device)?;
        bytes += set.iter().map(LoraWeights::size_bytes).sum::<usize>();
        sets.push(set);
    }
    let own = |adapter: usize| {
        (0..rows as u32).filter(move |row| *row as usize % NUM_ADAPTERS == adapter)
    };
    let own: Vec<Vec<u32>> = (0..NUM_ADAPTERS).map(|adapter| own(adapter).collect()).collect();
    let segments: Vec<Vec<LoraSegment<'_>>> = sets
        .iter()
        .map(|set| {
            let segments = set.iter().zip(&own).filter(|(_, rows)| !rows.is_empty());
            segments.map(|(weights, rows)| LoraSegment { weights, rows }).collect()
        })
        .collect();
    let used = segments[0].iter().map(|segment| segment.weights.size_bytes()).sum::<usize>();
    let flops = 2.0 * (rows * RANK * (inputs + outputs)) as f64;
    let mut segments = segments.iter().cycle();
    let work = Work { bytes: used as f64, flops };
    let add = || segments.next().map(|segments| add_lora(y.clone(), x.clone(), segments));
    Ok(bench.measure(work, add)?)
}

/// Packs one adapter for each row.
fn adapters(
    [outputs, inputs]: [usize; 2],
    dtype: WeightDtype,
    device: &Device,
) -> Result<Vec<LoraWeights>, KernelError> {
    let numbers: Vec<f32> =
        (0..RANK * inputs.max(outputs)).map(|i| (i as f32 * 0.37).sin()).collect();
    let pair = LoraPair {
        a: &numbers[..RANK * inputs],
        b: &numbers[..RANK * outputs],
        rank: RANK,
        scale: 1.0,
        first_output: 0,
    };
    (0..NUM_ADAPTERS)
        .map(|_| LoraWeights::pack(&[pair], [outputs, inputs], dtype, device))
        .collect()
}
