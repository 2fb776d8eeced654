//! On a GPU without tensor cores, by the routine that needs none: its matrices are laid out right.

use super::*;
use crate::cube::test_device::{assert_near, numbers, tensor, test_device, values};
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
