//! Comparisons with the reference: sums exactly, results within their rounding. Each row also has
//! the same bytes in every batch.

use burn::tensor::Device;
use proptest::prelude::*;

use super::pack::{CodeFormat, OffsetKind};
use super::{ActivationDtype, Epilogue, PackedQuantized, QuantizationScheme, product, reference};
use crate::activation::{Activation, cpu::activated};
use crate::simd::Isa;
use crate::{Codes, KernelError, LinearWeight, Offsets, QuantizedMatrix, WeightView};

/// Returns reproducible numbers in `0..=u32::MAX`.
fn numbers(count: usize, seed: u32) -> impl Iterator<Item = u32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..count).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    })
}

/// Returns values in (-1, 1).
pub(super) fn values(count: usize, seed: u32) -> Vec<f32> {
    numbers(count, seed).map(|n| n as f32 / 8_388_608.0 - 1.0).collect()
}

/// The kind of a test matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) format: CodeFormat,
    pub(super) offsets: OffsetKind,
    pub(super) is_permuted: bool,
}

pub(super) const KINDS: [Kind; 11] = [
    Kind { format: CodeFormat::U4, offsets: OffsetKind::None, is_permuted: false },
    Kind { format: CodeFormat::U8, offsets: OffsetKind::None, is_permuted: false },
    Kind { format: CodeFormat::U4, offsets: OffsetKind::Values, is_permuted: false },
    Kind { format: CodeFormat::U8, offsets: OffsetKind::Values, is_permuted: false },
    Kind { format: CodeFormat::U4, offsets: OffsetKind::Values, is_permuted: true },
    Kind { format: CodeFormat::U8, offsets: OffsetKind::None, is_permuted: true },
    Kind { format: CodeFormat::U4, offsets: OffsetKind::ZeroPoints, is_permuted: false },
    Kind { format: CodeFormat::U8, offsets: OffsetKind::ZeroPoints, is_permuted: false },
    Kind { format: CodeFormat::E2M1, offsets: OffsetKind::None, is_permuted: false },
    Kind { format: CodeFormat::E2M1, offsets: OffsetKind::Values, is_permuted: false },
    Kind { format: CodeFormat::E2M1, offsets: OffsetKind::None, is_permuted: true },
];

/// Returns a matrix of random codes, with factors made by `factor`.
pub(super) fn matrix(
    [outputs, inputs]: [usize; 2],
    group: usize,
    kind: Kind,
    factor: impl Fn(f32) -> f32,
) -> QuantizedMatrix {
    let elements = outputs * inputs;
    let pairs = || numbers(elements / 2, 7).map(|n| n as u8).collect();
    let codes = match kind.format {
        CodeFormat::U4 => Codes::U4(pairs()),
        CodeFormat::E2M1 => Codes::E2M1(pairs()),
        CodeFormat::U8 => Codes::I8(numbers(elements, 7).map(|n| n as i8).collect()),
    };
    let factors = |seed| values(elements / group, seed).into_iter().map(&factor).collect();
    let zero_points = numbers(elements / group, 10)
        .map(|n| if kind.format == CodeFormat::U4 { n as i8 & 15 } else { n as i8 })
        .collect();
    let offsets = match kind.offsets {
        OffsetKind::None => Offsets::None,
        OffsetKind::ZeroPoints => Offsets::ZeroPoints(zero_points),
        OffsetKind::Values => Offsets::Values(factors(9)),
    };
    let order = kind.is_permuted.then(|| {
        let mut order: Vec<u32> = (0..inputs as u32).collect();
        order.reverse();
        order.rotate_left(inputs / 3);
        order
    });
    QuantizedMatrix::new([outputs, inputs], group, codes, factors(8), offsets, order).unwrap()
}

pub(super) fn run(isa: Isa, x: &[f32], weight: &PackedQuantized) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len() / weight.header.groups.inputs * weight.header.outputs];
    product(isa, x, weight, Epilogue::Bias(None), &mut y);
    y
}

pub(super) fn pack(matrix: &QuantizedMatrix) -> PackedQuantized {
    PackedQuantized::ready_made(std::slice::from_ref(matrix), ActivationDtype::Int8).unwrap()
}

/// Returns whole numbers, with 127 in each group. They quantize to themselves, with a scale of 1.
fn whole(rows: usize, inputs: usize, group: usize) -> Vec<f32> {
    let mut x: Vec<f32> =
        numbers(rows * inputs, 3).map(|n| f32::from((n % 255) as i16 - 127)).collect();
    for group in x.chunks_mut(group) {
        group[group.len() / 2] = 127.0;
    }
    x
}

#[test]
fn sums_are_exact() {
    let shapes = [(2, 2), (8, 2), (96, 16), (64, 32), (320, 64), (384, 128), (130, 130)];
    for (inputs, group) in shapes {
        for kind in KINDS.into_iter().filter(|kind| !kind.is_permuted) {
            for (rows, outputs) in [(1, 1), (3, 33), (13, 32), (40, 70)] {
                let one = |x: f32| if x > 0.0 { 1.0 } else { 2.0 };
                let w = matrix([outputs, inputs], group, kind, one);
                let x = whole(rows, inputs, group);
                let exact = reference::product(&x, &w);
                for isa in Isa::available() {
                    let y = run(isa, &x, &pack(&w));
                    assert!(
                        y.iter().zip(&exact).all(|(y, (exact, _))| f64::from(*y) == *exact),
                        "{} {kind:?} {rows}x{inputs}x{outputs} in groups of {group}",
                        isa.name()
                    );
                }
            }
        }
    }
}

/// Scales that are powers of two are exact in f16.
#[test]
fn floats_of_four_bits_take_four_bits_in_memory() {
    let kind = Kind { format: CodeFormat::E2M1, offsets: OffsetKind::None, is_permuted: false };
    let packed = pack(&matrix([64, 128], 32, kind, |x| if x > 0.0 { 0.25 } else { 2.0 }));
    assert_eq!(packed.size_bytes(), 64 * 128 / 2 + 64 * 4 * 2);
}

/// Every product has the largest magnitude, and a sum has the most products.
#[test]
fn the_largest_sums_do_not_overflow() {
    for (inputs, code) in [(64, -128), (4096, -128), (1 << 17, -128), (1 << 17, 127)] {
        let codes = Codes::I8(vec![code; inputs]);
        let w = QuantizedMatrix::new([1, inputs], inputs, codes, vec![1.0], Offsets::None, None)
            .unwrap();
        for x in [127.0f32, -127.0] {
            let exact = f64::from(x) * f64::from(code) * inputs as f64;
            for isa in Isa::available() {
                let y = run(isa, &vec![x; inputs], &pack(&w));
                assert_eq!(y, [exact as f32], "{} {inputs} {code}", isa.name());
            }
        }
    }
}

/// A row with more inputs than one sum may have is cut.
#[test]
fn more_inputs_than_a_sum_takes_are_cut() {
    let inputs = 1 << 18;
    let codes = Codes::I8(vec![-128; inputs]);
    let w =
        QuantizedMatrix::new([1, inputs], inputs, codes, vec![1.0], Offsets::None, None).unwrap();
    let y = run(Isa::active(), &vec![-127.0; inputs], &pack(&w));
    assert_eq!(y, [127.0 * 128.0 * inputs as f32]);
    let odd = (1 << 18) + 2;
    let codes = Codes::I8(vec![0; odd]);
    let w = QuantizedMatrix::new([1, odd], odd, codes, vec![1.0], Offsets::None, None).unwrap();
    assert!(PackedQuantized::ready_made(&[w], ActivationDtype::Int8).is_err());
}

fn check(rows: usize, [outputs, inputs]: [usize; 2], group: usize, kind: Kind) {
    let w = matrix([outputs, inputs], group, kind, |x| x * 0.01);
    let x = values(rows * inputs, 1);
    let exact = reference::product(&x, &w);
    let rounding = 1e-7 * (inputs / group + 4) as f64;
    // The largest change of a factor in f16.
    let factors = 1.0 / 2048.0;
    for isa in Isa::available() {
        for (y, (exact, magnitude)) in run(isa, &x, &pack(&w)).iter().zip(&exact) {
            let bound = (rounding + factors) * magnitude;
            let error = (f64::from(*y) - exact).abs();
            assert!(error <= bound, "{} {kind:?}: {y} {exact} {bound}", isa.name());
        }
    }
}

#[test]
fn edge_shapes_agree_with_the_reference() {
    for kind in KINDS {
        for rows in [1, 2, 5, 12, 25, 40, 64, 100] {
            check(rows, [70, 96], 32, kind);
        }
        check(3, [1, 2], 2, kind);
        check(9, [33, 1000], 1000, kind);
        check(1, [300, 1030], 10, kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_agrees_with_the_reference(
        rows in 0usize..41,
        outputs in 1usize..100,
        groups in 1usize..9,
        half_group in 1usize..70,
        kind in 0usize..KINDS.len(),
    ) {
        check(rows, [outputs, groups * 2 * half_group], 2 * half_group, KINDS[kind]);
    }

    /// The error of a product with exact factors comes from quantizing the activations and from
    /// rounding alone: half a step for each activation.
    #[test]
    fn a_product_is_near_that_of_the_numbers(seed in 0u32..1000, kind in 0usize..KINDS.len()) {
        let ([outputs, inputs], group) = ([40, 320], 64);
        // Factors that are exact in f16.
        let w = matrix([outputs, inputs], group, KINDS[kind], |x| (x * 64.0).round() / 1024.0);
        let x = values(inputs, seed);
        let columns: Vec<f32> = match w.input_order() {
            Some(order) => order.iter().map(|input| x[*input as usize]).collect(),
            None => x.clone(),
        };
        let (_, scales) = reference::activations(&columns, 128);
        let y = run(Isa::active(), &x, &pack(&w));
        for (o, y) in y.into_iter().enumerate() {
            let row = w.row_f32(o);
            let exact: f64 = row.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            let mut bound = 1e-5;
            for c in 0..inputs {
                let input = w.input_order().map_or(c, |order| order[c] as usize);
                bound += f64::from(row[input].abs()) * 0.5001 * f64::from(scales[c / 128]);
            }
            prop_assert!((f64::from(y) - exact).abs() <= bound, "{y} {exact} {bound}");
        }
    }
}

/// A row alone has the same bytes as in every batch and place. Instruction sets that fuse
/// multiply-adds give the same bytes, too.
#[test]
fn a_row_does_not_depend_on_its_batch() {
    let (inputs, outputs, group) = (480, 333, 32);
    for kind in KINDS {
        let weight = pack(&matrix([outputs, inputs], group, kind, |x| x * 0.01));
        let x = values(100 * inputs, 4);
        let mut fused: Vec<Vec<u32>> = Vec::new();
        for isa in Isa::available() {
            let bits = |x: &[f32]| -> Vec<u32> {
                run(isa, x, &weight).into_iter().map(f32::to_bits).collect()
            };
            let alone: Vec<Vec<u32>> = x.chunks_exact(inputs).map(bits).collect();
            for rows in (1..41).chain([64, 100]) {
                let order: Vec<usize> = (0..rows).map(|r| (r * 27 + 5) % 100).collect();
                let batch: Vec<f32> =
                    order.iter().flat_map(|r| &x[r * inputs..(r + 1) * inputs]).copied().collect();
                for (y, r) in bits(&batch).chunks_exact(outputs).zip(order) {
                    assert!(y == alone[r], "{} {kind:?} {rows}", isa.name());
                }
            }
            if isa.name() != "portable" {
                fused.push(alone.concat());
            }
        }
        assert!(fused.windows(2).all(|pair| pair[0] == pair[1]), "{kind:?}");
    }
}

#[test]
fn a_non_finite_number_stays_in_its_row() {
    let weight = pack(&matrix([40, 64], 32, KINDS[2], |x| x));
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for isa in Isa::available() {
            let mut x = values(14 * 64, 5);
            let good = run(isa, &x, &weight);
            x[3 * 64 + 40] = bad;
            for (r, (y, good)) in run(isa, &x, &weight).chunks(40).zip(good.chunks(40)).enumerate()
            {
                let as_expected = if r == 3 { y.iter().all(|y| y.is_nan()) } else { y == good };
                assert!(as_expected, "{} row {r}", isa.name());
            }
        }
    }
}

#[test]
fn an_activation_within_a_product_is_that_after_it() {
    let (outputs, bias) = (70, values(70, 4));
    for activations in [ActivationDtype::Int8, ActivationDtype::Bf16, ActivationDtype::F32] {
        let weight = pack(&matrix([outputs, 64], 32, KINDS[2], |x| x));
        let weight = weight.with_activations(activations);
        for (isa, rows) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 27)]) {
            let x = values(rows * 64, 5);
            let [mut fused, mut apart] = [(); 2].map(|()| vec![f32::NAN; rows * outputs]);
            let epilogue = Epilogue::Activated(Some(&bias), Activation::Gelu);
            product(isa, &x, &weight, epilogue, &mut fused);
            product(isa, &x, &weight, Epilogue::Bias(Some(&bias)), &mut apart);
            activated(isa, &mut apart, outputs, Activation::Gelu);
            assert_eq!(fused, apart, "{} {activations:?}: {rows} rows", isa.name());
        }
    }
}

#[test]
fn rows_of_zeros_and_of_next_to_nothing_give_zeros() {
    let weight = pack(&matrix([40, 64], 32, KINDS[2], |x| x));
    for tiny in [0.0, 1e-38, 1e-45] {
        for isa in Isa::available() {
            assert!(run(isa, &[tiny; 64], &weight).iter().all(|y| *y == 0.0), "{tiny}");
        }
    }
}

/// Returns the weight that a packed form stands for: unit vectors select its columns.
fn unpacked(weight: &PackedQuantized) -> Vec<f32> {
    let [outputs, inputs] = weight.shape();
    let mut w = vec![0.0; outputs * inputs];
    for i in 0..inputs {
        let mut x = vec![0.0; inputs];
        x[i] = 127.0;
        for (o, y) in run(Isa::active(), &x, weight).into_iter().enumerate() {
            w[o * inputs + i] = y / 127.0;
        }
    }
    w
}

/// Returns the sum of squared differences.
fn error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

fn quantized(w: &[f32], inputs: usize, scheme: QuantizationScheme) -> Vec<f32> {
    let shape = [w.len() / inputs, inputs];
    unpacked(&PackedQuantized::quantize(&[WeightView::F32(w)], shape, scheme).unwrap())
}

#[test]
fn int8_is_within_half_a_step() {
    let inputs = 77;
    let w = values(40 * inputs, 6);
    let near = quantized(&w, inputs, QuantizationScheme::Int8);
    for (w, near) in w.chunks(inputs).zip(near.chunks(inputs)) {
        let step = w.iter().fold(0.0, |m: f32, w| m.max(w.abs())) / 127.0;
        assert!(w.iter().zip(near).all(|(w, near)| (w - near).abs() <= 0.5001 * step));
    }
}

/// Compared with the plain methods: symmetric with the largest magnitude at the end of the range,
/// and from the least to the largest.
#[test]
fn int4_errs_less_than_plain_rounding() {
    let inputs = 266;
    // Sums of uniform numbers are nearly normal.
    let parts: Vec<Vec<f32>> = (0..6).map(|seed| values(20 * inputs, seed)).collect();
    let w: Vec<f32> = (0..20 * inputs).map(|i| parts.iter().map(|p| p[i]).sum()).collect();
    for group_size in [8, 32, 64, 128] {
        let near = quantized(&w, inputs, QuantizationScheme::Int4 { group_size });
        let mut plain = Vec::new();
        for group in w.chunks(inputs).flat_map(|row| row.chunks(group_size)) {
            let (least, most) =
                group.iter().fold((f32::MAX, f32::MIN), |(a, b), w| (a.min(*w), b.max(*w)));
            let (step, zero) = match group_size {
                ..=32 => (least.abs().max(most) / 7.5, 0.0),
                _ => ((most - least) / 15.0, least),
            };
            plain.extend(group.iter().map(|w| ((w - zero) / step).round() * step + zero));
        }
        let (near, plain) = (error(&near, &w), error(&plain, &w));
        assert!(near < 0.93 * plain, "groups of {group_size}: {near} of {plain}");
    }
}

/// Weights beyond the range of f16, and below it, are kept as well as others.
#[test]
fn int4_keeps_weights_of_any_magnitude() {
    let inputs = 64;
    let w = values(4 * inputs, 8);
    let scheme = QuantizationScheme::Int4 { group_size: 32 };
    let share = |scale: f32| {
        let w: Vec<f32> = w.iter().map(|w| w * scale).collect();
        error(&quantized(&w, inputs, scheme), &w) / error(&vec![0.0; w.len()], &w)
    };
    let usual = share(1.0);
    for scale in [1e-9, 1e-5, 1e7] {
        assert!(share(scale) < 1.05 * usual, "{scale}: {} of {usual}", share(scale));
    }
}

#[test]
fn non_finite_weights_show() {
    for scheme in [QuantizationScheme::Int8, QuantizationScheme::Int4 { group_size: 32 }] {
        let mut w = values(2 * 64, 8);
        w[70] = f32::INFINITY;
        let packed = PackedQuantized::quantize(&[WeightView::F32(&w)], [2, 64], scheme).unwrap();
        let y = run(Isa::active(), &values(64, 1), &packed);
        assert!(y[0].is_finite() && y[1].is_nan());
    }
}

#[test]
fn parts_stack_along_the_outputs() {
    let kind = KINDS[4];
    let (a, b) = (matrix([3, 64], 32, kind, |x| x), matrix([40, 64], 32, kind, |x| -x));
    let x = values(5 * 64, 2);
    let isa = Isa::active();
    let (ya, yb) = (run(isa, &x, &pack(&a)), run(isa, &x, &pack(&b)));
    let both = PackedQuantized::ready_made(&[a, b], ActivationDtype::Int8).unwrap();
    for (r, y) in run(isa, &x, &both).chunks(43).enumerate() {
        assert_eq!(y[..3], ya[r * 3..][..3]);
        assert_eq!(y[3..], yb[r * 40..][..40]);
    }
    let w = values(5 * 8, 3);
    let parts = [WeightView::F32(&w[..16]), WeightView::F32(&w[16..])];
    let stacked = PackedQuantized::quantize(&parts, [5, 8], QuantizationScheme::Int8).unwrap();
    assert_eq!(unpacked(&stacked), quantized(&w, 8, QuantizationScheme::Int8));
}

/// Parts with zero points, without, and with other offsets make one weight of the widest kind.
#[test]
fn parts_of_different_offsets_stack() {
    let x = values(3 * 64, 2);
    let isa = Isa::active();
    let exact = |x: f32| (x * 64.0).round() / 1024.0;
    let parts = [0, 6, 2].map(|kind| matrix([5, 64], 32, KINDS[kind], exact));
    for (count, offsets) in [(2, OffsetKind::ZeroPoints), (3, OffsetKind::Values)] {
        let parts = &parts[..count];
        let stacked = PackedQuantized::ready_made(parts, ActivationDtype::Int8).unwrap();
        assert_eq!(stacked.header.offsets, offsets);
        let y = run(isa, &x, &stacked);
        for (p, part) in parts.iter().enumerate() {
            for (r, exact) in reference::product(&x, part).chunks(5).enumerate() {
                for (y, (exact, magnitude)) in y[(r * count + p) * 5..].iter().zip(exact) {
                    // A zero point as an offset is two terms that nearly cancel.
                    let bound = 1e-6 * (magnitude + 1.0);
                    assert!((f64::from(*y) - exact).abs() <= bound, "{y} {exact}");
                }
            }
        }
    }
}

/// Zero points that only say that all codes have one zero are not kept.
#[test]
fn a_common_zero_takes_no_zero_points() {
    let codes = || Codes::U4(numbers(32 * 4, 7).map(|n| n as u8).collect());
    let scales: Vec<f32> = values(8, 2);
    let new = |zero_points, scales: &[f32]| {
        let offsets = Offsets::ZeroPoints(zero_points);
        QuantizedMatrix::new([4, 64], 32, codes(), scales.into(), offsets, None).unwrap()
    };
    let symmetric = pack(&new(vec![8; 8], &scales));
    assert!(symmetric.header.offsets == OffsetKind::None && symmetric.header.zero == 8);
    let mut moved = vec![8; 8];
    moved[3] = 7;
    let kept = pack(&new(moved.clone(), &scales));
    assert_eq!(kept.header.offsets, OffsetKind::ZeroPoints);
    assert_eq!(kept.zero_points.len(), 2 * 32);
    // A group of zeros may have any zero point.
    let mut scales = scales;
    scales[3] = 0.0;
    assert_eq!(pack(&new(moved, &scales)).header.offsets, OffsetKind::None);
}

#[test]
fn parts_of_different_kinds_are_refused() {
    let kind = KINDS[1];
    let of = |shape, group, kind| matrix(shape, group, kind, |x| x);
    let first = of([4, 64], 32, kind);
    let others = [
        ("in_features", of([4, 96], 32, kind)),
        ("group_size", of([4, 64], 16, kind)),
        ("codes", of([4, 64], 32, KINDS[0])),
        ("input_order", of([4, 64], 32, KINDS[5])),
    ];
    for (field, other) in others {
        let parts = vec![first.clone(), other];
        let error = LinearWeight::pack_quantized(parts, ActivationDtype::Int8, &Device::flex())
            .unwrap_err();
        assert!(
            matches!(&error, KernelError::PartsDiffer { field: f, part: 1, .. } if f == field),
            "{error}"
        );
    }
    let none = LinearWeight::pack_quantized(Vec::new(), ActivationDtype::Int8, &Device::flex())
        .unwrap_err();
    assert!(none.to_string().contains("parts"), "{none}");
    let w = [0.0; 16];
    for group_size in [0, 12] {
        let scheme = QuantizationScheme::Int4 { group_size };
        let refused = LinearWeight::quantize(&[WeightView::F32(&w)], 16, scheme, &Device::flex());
        assert!(refused.unwrap_err().to_string().contains("group_size"));
    }
}
