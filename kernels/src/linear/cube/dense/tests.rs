//! On a GPU without tensor cores, by the routine that needs none: its matrices are laid out right.

use std::collections::BTreeSet;

use cubecl::bytes::Bytes;

use super::*;
use crate::cube::test_device::{assert_near, numbers, tensor, test_client, test_device, values};
use crate::linear::reference;
use crate::{LinearWeight, QuantizationScheme, WeightDtype, WeightView};

fn product(
    x: &[f32],
    weight: &LinearWeight,
    device: &burn::tensor::Device,
    by_panels: bool,
) -> Vec<f32> {
    let weight = weight.on_gpu().unwrap();
    let x = crate::cube::device_tensor(tensor(x, weight.inputs, device)).unwrap();
    let x = Rows::new(x);
    let y = x.sibling(x.rows, weight.outputs);
    let products = DenseProducts { half: HalfFormat::F16, is_tuned: false };
    let rows = layout::of_rows(&x, products.half);
    let way = Way { routine: Routine::SimpleUnit, by_panels };
    products.multiply(way, rows, weight, &y).unwrap();
    values(crate::cube::into_tensor(y))
}

#[test]
fn weights_of_every_format_are_laid_out_for_cubek() {
    let Some(device) = test_device() else { return };
    for (rows, inputs, outputs) in [(33, 64, 40), (75, 136, 72), (64, 256, 128), (50, 72, 192)] {
        let (x, w) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
        let exact = reference::linear(&x, &w, inputs, None);
        let view = || [WeightView::F32(&w)];
        let pack = |dtype| LinearWeight::pack(&view(), inputs, dtype, &device).unwrap();
        let quantize = |scheme| LinearWeight::quantize(&view(), inputs, scheme, &device).unwrap();
        let root = (inputs as f64).sqrt();
        for (weight, bound, what) in [
            (pack(WeightDtype::F16), 1e-3, "f16"),
            (pack(WeightDtype::Bf16), 1e-2, "bf16"),
            (quantize(QuantizationScheme::Int8), 2e-2, "int8"),
            (quantize(QuantizationScheme::Int4 { group_size: 8 }), 0.15, "int4"),
        ] {
            let y = product(&x, &weight, &device, false);
            assert_near(&y, &exact, bound * root, &format!("{what} {rows} {inputs} {outputs}"));
            if what == "f16" && outputs % PANEL == 0 {
                assert_eq!(product(&x, &weight, &device, true), y, "as they lie");
            }
        }
    }
}

#[test]
fn a_device_without_tensor_cores_is_not_asked_for_them() {
    let Some(device) = test_device() else { return };
    let w = numbers(64 * 64, 3);
    let packed = |dtype| LinearWeight::pack(&[WeightView::F32(&w)], 64, dtype, &device).unwrap();
    for dtype in [WeightDtype::F32, WeightDtype::F16, WeightDtype::Bf16] {
        let weight = packed(dtype);
        let weight = weight.on_gpu().unwrap();
        let client = weight.device.client();
        let is_able = HalfFormat::of(&client, weight.format).is_some();
        assert_eq!(DenseProducts::new(weight, TensorCores::Tuned).is_some(), is_able);
        assert!(DenseProducts::new(weight, TensorCores::Off).is_none());
        assert!(dtype != WeightDtype::F32 || !is_able, "f32 stays exact");
    }
}

/// Where no routine can be launched, the measurement says so, and other kernels make the product.
#[test]
fn a_device_that_no_routine_suits_is_measured_as_such() {
    let Some(device) = test_device() else { return };
    let w = numbers(64 * 72, 4);
    let weight = LinearWeight::pack(&[WeightView::F32(&w)], 72, WeightDtype::F16, &device).unwrap();
    let weight = weight.on_gpu().unwrap();
    if has_tensor_cores(&weight.device.client()) {
        return;
    }
    let x = crate::cube::device_tensor(tensor(&numbers(40 * 72, 5), 72, &device)).unwrap();
    let x = Rows::new(x);
    let y = x.sibling(x.rows, weight.outputs);
    let tuned = DenseProducts { half: HalfFormat::F16, is_tuned: true };
    assert!(!tuned.launch(&x, weight, &y));
    let known = tuned_products();
    let is_it =
        |known: &&crate::TunedProduct| [known.rows, known.inputs, known.outputs] == [64, 72, 64];
    let found = known.iter().find(is_it).unwrap();
    assert_eq!((&*found.dtype, &found.routine), ("f16", &None));
    assert!(!DenseProducts { is_tuned: false, ..tuned }.launch(&x, weight, &y));
}

/// A routine that loads the next stage meanwhile computes two stages a turn. Before cubek 0.3, the
/// last turn of an odd number of stages added numbers from behind the matrices. Here all numbers
/// behind them are NaN. <https://github.com/tracel-ai/burn/issues/5626>,
/// <https://github.com/tracel-ai/cubek/issues/434>
#[test]
fn an_odd_number_of_stages_reads_nothing_behind_the_matrices() {
    const BEHIND: usize = 128;
    let Some((client, _)) = test_client() else { return };
    let [rows, outputs] = [64, 64];
    // Odd multiples of 8, 16, 32 and 64, which are the inputs of a stage, and even ones.
    for inputs in [8, 24, 48, 72, 96, 104, 128, 160, 192, 208, 320] {
        let stored = |numbers: &[f32], width: usize, stored_rows: usize, stride: usize| {
            let mut all = vec![half::f16::NAN; stored_rows * stride];
            for (row, numbers) in numbers.chunks(width).enumerate() {
                let halves = numbers.iter().map(|x| half::f16::from_f32(*x));
                all[row * stride..][..width].iter_mut().zip(halves).for_each(|(to, x)| *to = x);
            }
            client.create(Bytes::from_elems(all))
        };
        let (x, w) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
        let exact = reference::linear(&x, &w, inputs, None);
        let columns: Vec<f32> =
            (0..inputs * outputs).map(|i| w[i % outputs * inputs + i / outputs]).collect();
        let x_stride = inputs + BEHIND;
        let (x, w) = (
            stored(&x, inputs, rows, x_stride),
            stored(&columns, outputs, inputs + BEHIND, outputs),
        );
        let mut ran = BTreeSet::new();
        for routine in [Routine::SimpleUnit, Routine::DoubleUnit].into_iter().chain(Routine::ALL) {
            let y = client.create(Bytes::from_elems(vec![f32::NAN; rows * outputs]));
            let done = routine.multiply(
                &client,
                HalfFormat::F16,
                Matrices::part(x.clone(), rows, inputs, x_stride),
                Matrices::part(w.clone(), inputs, outputs, outputs),
                Matrices::part(y.clone(), rows, outputs, outputs),
            );
            if done.is_err() {
                continue;
            }
            ran.insert(routine.name());
            let y = client.read_one(y).unwrap();
            let what = format!("{} {inputs}", routine.name());
            assert_near(bytemuck::cast_slice(&y), &exact, 1e-3 * inputs as f64, &what);
        }
        assert!(ran.contains("SimpleUnit") && ran.contains("DoubleUnit"), "{inputs}: {ran:?}");
    }
}

/// In cubecl 0.10, a candidate too large for the device left a server that answered nothing more
/// (<https://github.com/tracel-ai/cubecl/issues/1531>).
#[test]
fn a_way_that_takes_too_much_memory_is_not_chosen_and_harms_nothing() {
    let Some((client, _)) = test_client() else { return };
    let Some(device) = test_device() else { return };
    let [rows, inputs, outputs] = [48, 88, 64];
    let (x, w) = (numbers(rows * inputs, 6), numbers(outputs * inputs, 7));
    let exact = reference::linear(&x, &w, inputs, None);
    let view = [WeightView::F32(&w)];
    let weight = LinearWeight::pack(&view, inputs, WeightDtype::F16, &device).unwrap();
    let weight = weight.on_gpu().unwrap();
    let x = Rows::new(crate::cube::device_tensor(tensor(&x, inputs, &device)).unwrap());
    let y = x.sibling(rows, outputs);
    let products = DenseProducts { half: HalfFormat::F16, is_tuned: true };
    let too_much = client.properties().memory.max_page_size as usize + (1 << 20);
    let [large, small] =
        [true, false].map(|by_panels| Way { routine: Routine::SimpleUnit, by_panels });
    let run = |way: Way| {
        let of_rows = match way == large {
            true => Matrices::part(client.empty(too_much), rows, inputs, inputs),
            false => layout::of_rows(&x, products.half),
        };
        products.multiply(way, of_rows, weight, &y)
    };
    // A choice is kept for each power of two of rows.
    let chosen = |rows: usize, ways: &[Way]| {
        let shape = [rows, inputs, outputs];
        choice::chosen(&weight.device, weight.format, shape, ways, &y.handle, run)
    };
    assert_eq!(chosen(rows, &[large]), None);
    assert_eq!(chosen(2 * rows, &[large, small]), Some(small));
    run(small).unwrap();
    let bound = 1e-3 * (inputs as f64).sqrt();
    assert_near(&values(crate::cube::into_tensor(y)), &exact, bound, "after it");
}
