//! On a GPU: rows agree with the reference, and a row alone equals the row in a batch.

use super::*;
use crate::cube::test_device::{assert_near, bits, numbers, tensor, test_device, values, vector};

/// Widths that fill vectors or do not, some below and some above the units of a cube.
const WIDTHS: [usize; 6] = [3, 7, 64, 130, 1000, 2052];

#[test]
fn rows_of_any_width_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for width in WIDTHS {
        let (x, weight, bias) = (numbers(3 * width, 1), numbers(width, 2), numbers(width, 3));
        let vectors = [&weight, &bias].map(|numbers| vector(numbers, &device));
        for (has_weight, has_bias) in [(false, false), (true, false), (false, true), (true, true)] {
            let y = layer_norm(
                tensor(&x, width, &device),
                has_weight.then_some(&vectors[0]),
                has_bias.then_some(&vectors[1]),
                1e-5,
            );
            let (weight, bias) = (has_weight.then_some(&weight[..]), has_bias.then_some(&bias[..]));
            let exact = reference::layer_norm(&x, width, weight, bias, 1e-5);
            assert_near(&values(y), &exact, 2e-5, &format!("{width} {has_weight} {has_bias}"));
        }
    }
}

#[test]
fn the_residual_is_added_first_and_returned() {
    let Some(device) = test_device() else { return };
    for width in WIDTHS {
        let (x, residual) = (numbers(3 * width, 1), numbers(3 * width, 3));
        let (weight, bias) = (numbers(width, 2), numbers(width, 4));
        let vectors = [&weight, &bias].map(|numbers| vector(numbers, &device));
        let expected: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
        for bias in [None, Some(&bias)] {
            let given = bias.map(|_| &vectors[1]);
            let (y, sum) = add_layer_norm(
                tensor(&x, width, &device),
                Some(tensor(&residual, width, &device)),
                Some(&vectors[0]),
                given,
                1e-5,
            );
            let bias = bias.map(|bias| &bias[..]);
            let exact = reference::layer_norm(&expected, width, Some(&weight), bias, 1e-5);
            assert_near(&values(y), &exact, 2e-5, &format!("width {width}"));
            assert_eq!(values(sum), expected);
            let alone = tensor(&expected, width, &device);
            let (y, first) = add_layer_norm(alone, None, Some(&vectors[0]), given, 1e-5);
            assert_near(&values(y), &exact, 2e-5, &format!("width {width}, without a residual"));
            assert_eq!(values(first), expected);
        }
    }
}

#[test]
fn a_row_does_not_see_its_batch() {
    let Some(device) = test_device() else { return };
    let (width, rows) = (130, 300);
    let (x, weight) = (numbers(rows * width, 1), vector(&numbers(width, 2), &device));
    let norm = |x: &[f32]| {
        values(layer_norm(tensor(x, width, &device), Some(&weight), Some(&weight), 1e-5))
    };
    let all = norm(&x);
    for row in [0, 17, 299] {
        let range = row * width..(row + 1) * width;
        assert_eq!(bits(&norm(&x[range.clone()])), bits(&all[range]));
    }
}

#[test]
fn no_rows_are_accepted() {
    let Some(device) = test_device() else { return };
    let y = layer_norm(tensor(&[], 8, &device), None, None, 1e-5);
    assert_eq!(y.dims(), [0, 8]);
}
