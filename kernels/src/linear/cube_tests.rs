//! Tests on a GPU. Products agree with the reference. A row has the same bytes alone and in every
//! batch.

use half::{bf16, f16};

use super::*;
use crate::cube::test_device::{assert_near, bits, numbers, tensor, test_device, values, vector};
use crate::{Offsets, embedding, swiglu, tied_embedding};

const DTYPES: [WeightDtype; 3] = [WeightDtype::F32, WeightDtype::F16, WeightDtype::Bf16];

fn kept(w: &[f32], dtype: WeightDtype) -> Vec<f32> {
    let keep = |w: &f32| match dtype {
        WeightDtype::F32 => *w,
        WeightDtype::F16 => f16::from_f32(*w).to_f32(),
        WeightDtype::Bf16 => bf16::from_f32(*w).to_f32(),
    };
    w.iter().map(keep).collect()
}

fn pack(w: &[f32], inputs: usize, dtype: WeightDtype, device: &Device) -> LinearWeight {
    LinearWeight::pack(&[WeightView::F32(w)], inputs, dtype, device).unwrap()
}

#[test]
fn edge_shapes_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    // Few rows and many. Inputs and outputs that fill whole vectors, blocks and panels, and others.
    let shapes = [
        (1, 1, 1),
        (1, 7, 33),
        (5, 257, 31),
        (8, 512, 64),
        (13, 4200, 70),
        (33, 96, 40),
        (75, 130, 65),
        (70, 260, 128),
    ];
    for dtype in DTYPES {
        for (rows, inputs, outputs) in shapes {
            let (x, w) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
            let bias = outputs.is_multiple_of(2).then(|| numbers(outputs, 3));
            let weight = pack(&w, inputs, dtype, &device);
            let on_device = bias.as_ref().map(|bias| vector(bias, &device));
            let y = values(linear(tensor(&x, inputs, &device), &weight, on_device.as_ref()));
            let exact = reference::linear(&x, &kept(&w, dtype), inputs, bias.as_deref());
            let bound = 1e-6 * (inputs as f64 + 1.0);
            assert_near(&y, &exact, bound, &format!("{dtype:?} {rows} {inputs} {outputs}"));
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let Some(device) = test_device() else { return };
    let (inputs, outputs, all) = (300, 130, 70);
    let (x, w) = (numbers(all * inputs, 4), numbers(outputs * inputs, 5));
    for dtype in DTYPES {
        let weight = pack(&w, inputs, dtype, &device);
        let run = |x: &[f32]| bits(&values(linear(tensor(x, inputs, &device), &weight, None)));
        let alone: Vec<_> = x.chunks_exact(inputs).map(run).collect();
        for rows in [2, 3, 5, 8, 9, 32, 33, 70] {
            let first = all - rows;
            let batch = run(&x[first * inputs..]);
            for (y, alone) in batch.chunks_exact(outputs).zip(&alone[first..]) {
                assert!(y == alone, "{dtype:?}: a row among {rows}");
            }
        }
    }
}

#[test]
fn fused_swiglu_equals_swiglu_after_the_product() {
    let Some(device) = test_device() else { return };
    for (rows, inputs, intermediate) in [(1, 133, 64), (5, 96, 192), (3, 20, 23), (40, 64, 64)] {
        let w = numbers(2 * intermediate * inputs, 6);
        let scheme = QuantizationScheme::Int4 { group_size: 32 };
        for weight in [
            pack(&w, inputs, WeightDtype::Bf16, &device),
            LinearWeight::quantize(&[WeightView::F32(&w)], inputs, scheme, &device).unwrap(),
        ] {
            let x = tensor(&numbers(rows * inputs, 7), inputs, &device);
            let fused = values(linear_swiglu(x.clone(), &weight));
            let apart = values(swiglu(linear(x, &weight, None)));
            assert_eq!(bits(&fused), bits(&apart), "{rows} {inputs} {intermediate}");
        }
    }
}

#[test]
fn embeddings_are_the_rows_as_stored() {
    let Some(device) = test_device() else { return };
    let (vocab, hidden) = (150, 37);
    let w = numbers(vocab * hidden, 8);
    for dtype in DTYPES {
        let view = WeightView::F32(&w);
        let weight = LinearWeight::pack(&[view], hidden, dtype, &device).unwrap();
        let table = crate::EmbeddingTable::new(view, vocab, hidden, dtype, &device).unwrap();
        let ids = [149, 0, 63, 64, 0];
        let row = |id: u32| kept(&w[id as usize * hidden..][..hidden], dtype);
        let expected: Vec<f32> = ids.into_iter().flat_map(row).collect();
        assert_eq!(values(tied_embedding(&weight, &ids)), expected);
        assert_eq!(values(embedding(&table, &ids)), expected);
        assert_eq!(embedding(&table, &[]).dims(), [0, hidden]);
    }
}

/// Tests every scheme, groups that divide the inputs or do not, and few rows and many.
#[test]
fn products_with_quantized_weights_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let (inputs, outputs) = (200, 70);
    let w = numbers(outputs * inputs, 2);
    for scheme in [
        QuantizationScheme::Int8,
        QuantizationScheme::Int4 { group_size: 32 },
        QuantizationScheme::Int4 { group_size: 64 },
    ] {
        let weight =
            LinearWeight::quantize(&[WeightView::F32(&w)], inputs, scheme, &device).unwrap();
        assert!(!weight.has_rows());
        for rows in [1, 3, 40] {
            let x = numbers(rows * inputs, 1);
            let y = values(linear(tensor(&x, inputs, &device), &weight, None));
            let exact = reference::linear(&x, &w, inputs, None);
            // A weight is wrong by at most half a step between codes, of which there are 254 or 15.
            // The errors have either sign, so their sum grows with the root of the inputs.
            let step = if scheme == QuantizationScheme::Int8 { 1.0 / 254.0 } else { 1.0 / 15.0 };
            let bound = step * (inputs as f64).sqrt() * 2.0;
            assert_near(&y, &exact, bound, &format!("{scheme:?} {rows}"));
        }
    }
}

#[test]
fn products_with_given_codes_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let (shape, size) = ([70, 64], 16);
    let u4 = crate::Codes::U4((0..70 * 32).map(|i| (i * 37 % 256) as u8).collect());
    let i8 = crate::Codes::I8((0..70 * 64).map(|i| (i * 37 % 256) as u8 as i8).collect());
    let scales: Vec<f32> = numbers(280, 1).iter().map(|x| x * 0.1).collect();
    let order: Vec<u32> = (0..64).map(|c| c * 5 % 64).collect();
    for (codes, offsets, order) in [
        (u4.clone(), Offsets::Values(numbers(280, 2)), Some(order)),
        (u4.clone(), Offsets::ZeroPoints((0..280).map(|i| (i % 16) as i8).collect()), None),
        (u4, Offsets::None, None),
        (i8, Offsets::None, None),
    ] {
        let matrix =
            QuantizedMatrix::new(shape, size, codes, scales.clone(), offsets, order).unwrap();
        let w: Vec<f32> = (0..70).flat_map(|o| matrix.row_f32(o)).collect();
        let weight =
            LinearWeight::pack_quantized(vec![matrix], ActivationDtype::F32, &device).unwrap();
        for rows in [1, 40] {
            let x = numbers(rows * 64, 3);
            let y = values(linear(tensor(&x, 64, &device), &weight, None));
            assert_near(&y, &reference::linear(&x, &w, 64, None), 1e-3, &format!("{rows} rows"));
        }
        let x = numbers(40 * 64, 3);
        let all = values(linear(tensor(&x, 64, &device), &weight, None));
        let alone = values(linear(tensor(&x[..64], 64, &device), &weight, None));
        assert_eq!(bits(&alone), bits(&all[..70]));
    }
}

#[test]
fn groups_that_cut_vectors_are_rejected() {
    let Some(device) = test_device() else { return };
    let codes = crate::Codes::I8(vec![1; 12]);
    let matrix = QuantizedMatrix::new([2, 6], 2, codes, vec![1.0; 6], Offsets::None, None).unwrap();
    let refused =
        LinearWeight::pack_quantized(vec![matrix], ActivationDtype::F32, &device).unwrap_err();
    assert!(matches!(refused, KernelError::UnsupportedForm { .. }), "{refused}");
}
