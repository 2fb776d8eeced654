//! The native product: panels over threads, each panel's block of inputs over all rows.

use burn_flex::FlexTensor;
use half::bf16;

use super::pack::{K_BLOCK, PANEL, PackedWeight, panel_len_bf16, panel_len_f32};
use super::{LinearStorage, LinearWeight};
use crate::tensors::{dense, dims2, from_rows, values};
use crate::threads::{SharedMut, for_each_piece};

/// `x Wᵀ + b` on CPU tensors.
pub(crate) fn linear(x: FlexTensor, weight: &LinearWeight, bias: Option<FlexTensor>) -> FlexTensor {
    let LinearStorage::Cpu(packed) = &weight.storage;
    let [rows, inputs] = dims2(&x);
    let (x, bias, outputs) = (dense(x), bias.map(dense), weight.out_features);
    assert_eq!(inputs, weight.in_features, "linear: x is [{rows}, {inputs}]");
    let bias = bias.as_ref().map(values);
    assert!(bias.is_none_or(|b| b.len() == outputs), "linear: bias must have {outputs} elements");
    let mut y = vec![0.0; rows * outputs];
    let shared = SharedMut::new(&mut y);
    for_each_piece(outputs.div_ceil(PANEL), rows * inputs * outputs, |panel| {
        for (r, row) in values(&x).chunks_exact(inputs.max(1)).enumerate() {
            let sums = panel_row(packed, panel, row);
            let first = panel * PANEL;
            let width = PANEL.min(outputs - first);
            // SAFETY: each panel writes its own columns of each row.
            let out = unsafe { shared.slice(r * outputs + first, width) };
            for (j, o) in out.iter_mut().enumerate() {
                *o = sums[j] + bias.map_or(0.0, |b| b[first + j]);
            }
        }
    });
    from_rows(y, rows, outputs)
}

/// One row against one panel.
fn panel_row(packed: &PackedWeight, panel: usize, row: &[f32]) -> [f32; PANEL] {
    let mut total = [0.0; PANEL];
    for (b, block) in row.chunks(K_BLOCK).enumerate() {
        let mut sums = [0.0; PANEL];
        for (i, x) in block.iter().enumerate() {
            let k = b * K_BLOCK + i;
            for (j, sum) in sums.iter_mut().enumerate() {
                let w = match packed {
                    PackedWeight::F32(data) => {
                        data[panel * panel_len_f32(row.len()) + k * PANEL + j]
                    }
                    PackedWeight::Bf16(data) => {
                        let start = panel * panel_len_bf16(row.len());
                        bf16::from_bits(data[start + (k / 2 * PANEL + j) * 2 + k % 2]).to_f32()
                    }
                };
                *sum += x * w;
            }
        }
        for (t, s) in total.iter_mut().zip(sums) {
            *t += s;
        }
    }
    total
}
