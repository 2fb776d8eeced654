//! Comparisons with the reference on ragged shapes. Each row also has the same bytes in every
//! batch.

use burn::tensor::{Device, Tensor, TensorData};
use half::{bf16, f16};
use proptest::prelude::*;

use super::cpu::{fuses_swiglu, has_tiles, multiply_to, product};
use super::output::Epilogue;
use super::*;
use crate::activation::{Activation, cpu::activated, cpu::gated_into};
use crate::simd::Isa;

/// Returns reproducible values in (-1, 1).
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect()
}

fn pack(w: &[f32], inputs: usize, dtype: WeightDtype) -> LinearWeight {
    LinearWeight::pack(&[WeightView::F32(w)], inputs, dtype, &Device::flex()).unwrap()
}

fn run(isa: Isa, x: &[f32], weight: &LinearWeight, bias: Option<&[f32]>) -> Vec<f32> {
    let LinearStorage::Cpu(packed) = &weight.storage else { unreachable!() };
    let sizes = [weight.in_features, weight.out_features];
    let mut y = vec![f32::NAN; x.len() / sizes[0] * sizes[1]];
    product(isa, x, packed, sizes, Epilogue::Bias(bias), &mut y);
    y
}

fn check(isa: Isa, rows: usize, inputs: usize, outputs: usize, dtype: WeightDtype, bias: bool) {
    let (x, w) = (values(rows * inputs, 1), values(outputs * inputs, 2));
    let bias = bias.then(|| values(outputs, 3));
    let y = run(isa, &x, &pack(&w, inputs, dtype), bias.as_deref());
    let (x, w) = match dtype {
        WeightDtype::F32 => (x, w),
        WeightDtype::F16 => unreachable!("not on the CPU"),
        WeightDtype::Bf16 if isa.rounds_activations() => (rounded(&x), rounded(&w)),
        WeightDtype::Bf16 => (x, rounded(&w)),
    };
    let exact = reference::linear(&x, &w, inputs, bias.as_deref());
    let magnitude = |x: &[f32]| x.iter().map(|x| x.abs()).collect::<Vec<_>>();
    let scale = reference::linear(&magnitude(&x), &magnitude(&w), inputs, None);
    assert_eq!(y.len(), exact.len());
    for ((y, exact), scale) in y.iter().zip(exact).zip(scale) {
        let bound = 1e-5 * (scale + 1.0);
        let name = isa.name();
        assert!((f64::from(*y) - exact).abs() < bound, "{name} {dtype:?}: {y} {exact} {bound}");
    }
}

#[test]
fn edge_shapes_agree_with_the_reference() {
    let shapes = [
        (1, 1, 1),
        (1, 7, 33),
        (5, 257, 31),
        (13, 512, 64),
        (8, 513, 100),
        (30, 96, 40),
        (75, 130, 65),
    ];
    for isa in Isa::available() {
        for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
            for (rows, inputs, outputs) in shapes {
                check(isa, rows, inputs, outputs, dtype, outputs % 2 == 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shape_agrees_with_the_reference(
        rows in 0usize..30,
        inputs in 1usize..600,
        outputs in 1usize..130,
        bf16_weight: bool,
        bias: bool,
    ) {
        let dtype = if bf16_weight { WeightDtype::Bf16 } else { WeightDtype::F32 };
        for isa in Isa::available() {
            check(isa, rows, inputs, outputs, dtype, bias);
        }
    }
}

/// A row alone has the same bytes as in every batch.
#[test]
fn a_row_does_not_depend_on_its_batch() {
    let (inputs, outputs, all) = (259, 333, 600);
    let (x, w) = (values(all * inputs, 4), values(outputs * inputs, 5));
    for isa in Isa::available() {
        for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
            let weight = pack(&w, inputs, dtype);
            let alone: Vec<Vec<f32>> =
                x.chunks_exact(inputs).map(|row| run(isa, row, &weight, None)).collect();
            for rows in (2..40).chain([64, 100, 300, 600]) {
                let order: Vec<usize> = (0..rows).map(|r| (r * 77 + rows) % all).collect();
                let batch: Vec<f32> =
                    order.iter().flat_map(|r| &x[r * inputs..(r + 1) * inputs]).copied().collect();
                let y = run(isa, &batch, &weight, None);
                for (y, r) in y.chunks_exact(outputs).zip(order) {
                    let same =
                        y.iter().map(|v| v.to_bits()).eq(alone[r].iter().map(|v| v.to_bits()));
                    assert!(same, "{} {dtype:?}: row {r} among {rows}", isa.name());
                }
            }
        }
    }
}

/// Fused and separate SwiGLU give the same bytes.
#[test]
fn swiglu_within_a_product_is_swiglu_after_it() {
    let inputs = 133;
    for (isa, intermediate) in Isa::available().into_iter().flat_map(|isa| [(isa, 64), (isa, 160)])
    {
        for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
            let weight = pack(&values(2 * intermediate * inputs, 6), inputs, dtype);
            let LinearStorage::Cpu(packed) = &weight.storage else { unreachable!() };
            if !fuses_swiglu(isa, packed, 2 * intermediate) {
                assert_eq!((isa.name(), dtype), ("amx", WeightDtype::Bf16));
                continue;
            }
            for rows in [1, 2, 5, 12, 13, 31, 64, 500] {
                let x = values(rows * inputs, 7);
                let sizes = [inputs, intermediate];
                let [mut fused, mut apart] = [(); 2].map(|()| vec![f32::NAN; rows * intermediate]);
                product(isa, &x, packed, sizes, Epilogue::SwiGlu, &mut fused);
                let gate_up = run(isa, &x, &weight, None);
                gated_into(isa, &gate_up, intermediate, Activation::Silu, &mut apart);
                let bits = |y: &[f32]| y.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&fused), bits(&apart), "{} {dtype:?}: {rows} rows", isa.name());
            }
        }
    }
}

#[test]
fn an_activation_within_a_product_is_that_after_it() {
    let inputs = 133;
    let bits = |y: &[f32]| y.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for (isa, outputs) in Isa::available().into_iter().flat_map(|isa| [(isa, 64), (isa, 75)]) {
        for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
            let weight = pack(&values(outputs * inputs, 6), inputs, dtype);
            if has_tiles(isa, &weight) {
                continue;
            }
            let biases = values(outputs, 8);
            for (rows, bias) in [(1, None), (5, Some(&biases)), (13, None), (100, Some(&biases))] {
                let x = values(rows * inputs, 7);
                let bias = bias.map(|bias| &bias[..]);
                for activation in [Activation::Gelu, Activation::Tanh] {
                    let mut fused = vec![f32::NAN; rows * outputs];
                    let epilogue = Epilogue::Activated(bias, activation);
                    multiply_to(isa, &x, &weight, epilogue, &mut fused);
                    let mut apart = run(isa, &x, &weight, bias);
                    activated(isa, &mut apart, outputs, activation);
                    assert_eq!(bits(&fused), bits(&apart), "{} {dtype:?}: {rows}", isa.name());
                }
            }
        }
    }
}

#[test]
fn a_product_with_an_activation_is_both_operations() {
    let device = Device::flex();
    let (inputs, outputs) = (20, 35);
    let bias = WeightVector::new(values(outputs, 3), &device).unwrap();
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let weight = pack(&values(outputs * inputs, 8), inputs, dtype);
        let x =
            Tensor::<2>::from_data(TensorData::new(values(3 * inputs, 9), [3, inputs]), &device);
        let fused = linear_activated(x.clone(), &weight, Some(&bias), Activation::Gelu);
        let apart = crate::activate(linear(x, &weight, Some(&bias)), Activation::Gelu);
        assert_eq!(fused.into_data(), apart.into_data());
    }
}

#[test]
fn swiglu_of_a_width_that_is_no_panels_is_computed_after() {
    let device = Device::flex();
    let (inputs, intermediate) = (20, 23);
    let weight = pack(&values(2 * intermediate * inputs, 8), inputs, WeightDtype::F32);
    let x = Tensor::<2>::from_data(TensorData::new(values(3 * inputs, 9), [3, inputs]), &device);
    let fused = linear_swiglu(x.clone(), &weight);
    assert_eq!(fused.dims(), [3, intermediate]);
    assert_eq!(fused.into_data(), crate::swiglu(linear(x, &weight, None)).into_data());
}

#[test]
fn parts_stack_along_the_outputs_in_every_format() {
    let device = Device::flex();
    let (a, b, c) = (values(6, 1), rounded(&values(9, 2)), rounded(&values(3, 3)));
    let b16: Vec<bf16> = b.iter().map(|x| bf16::from_f32(*x)).collect();
    let c16: Vec<f16> = c.iter().map(|x| f16::from_f32(*x)).collect();
    let parts = [WeightView::F32(&a), WeightView::Bf16(&b16), WeightView::F16(&c16)];
    let weight = LinearWeight::pack(&parts, 3, WeightDtype::F32, &device).unwrap();
    assert_eq!((weight.out_features(), weight.in_features()), (6, 3));
    // Each unit vector selects a column.
    let unit = TensorData::new(vec![1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], [3, 3]);
    let bias = WeightVector::new(vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0], &device).unwrap();
    let y = linear(Tensor::from_data(unit, &device), &weight, Some(&bias));
    let y = y.into_data().try_to_vec::<f32>().unwrap();
    let all: Vec<f32> = [a, b, c].concat();
    for k in 0..3 {
        for o in 0..6 {
            let expected = all[o * 3 + k] + if o == 0 { 1.0 } else { 0.0 };
            assert!((y[k * 6 + o] - expected).abs() < 1e-3, "{k} {o}");
        }
    }
}

#[test]
fn a_part_that_is_no_whole_number_of_rows_is_refused() {
    let w = [0.0; 7];
    let parts = [WeightView::F32(&w[..6]), WeightView::F32(&w)];
    let error = LinearWeight::pack(&parts, 3, WeightDtype::F32, &Device::flex()).unwrap_err();
    assert_eq!(error.to_string(), "linear weight: parts[1] holds 7 elements, but 6 are needed");
    let refused =
        LinearWeight::pack(&parts[..1], 3, WeightDtype::F16, &Device::flex()).unwrap_err();
    assert_eq!(refused.to_string(), "linear weight: float16 has no kernels on device cpu");
    let none = LinearWeight::pack(&[], 3, WeightDtype::F32, &Device::flex()).unwrap_err();
    assert!(none.to_string().contains("out_features"));
}
