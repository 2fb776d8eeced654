//! On a GPU: rows agree with the reference, and a row alone equals the row in a batch.

use super::*;
use crate::cube::test_device::{assert_near, bits, numbers, tensor, test_device, values, vector};

/// Widths that fill vectors or do not, some below and some above the units of a cube.
const WIDTHS: [usize; 6] = [1, 7, 64, 130, 1000, 2052];

#[test]
fn rows_of_any_width_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for width in WIDTHS {
        let (x, weight) = (numbers(3 * width, 1), numbers(width, 2));
        let y = rms_norm(tensor(&x, width, &device), &vector(&weight, &device), 1e-5);
        let exact = reference::rms_norm(&x, &weight, 1e-5);
        assert_near(&values(y), &exact, 1e-5, &format!("width {width}"));
    }
}

#[test]
fn the_residual_is_added_first_and_returned() {
    let Some(device) = test_device() else { return };
    for width in WIDTHS {
        let (x, residual) = (numbers(3 * width, 1), numbers(3 * width, 3));
        let weight = numbers(width, 2);
        let (y, sum) = add_rms_norm(
            tensor(&x, width, &device),
            Some(tensor(&residual, width, &device)),
            &vector(&weight, &device),
            1e-5,
        );
        let expected: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
        let exact = reference::rms_norm(&expected, &weight, 1e-5);
        assert_near(&values(y), &exact, 1e-5, &format!("width {width}"));
        assert_eq!(values(sum), expected);
        let (y, first) =
            add_rms_norm(tensor(&expected, width, &device), None, &vector(&weight, &device), 1e-5);
        assert_near(&values(y), &exact, 1e-5, &format!("width {width}, without a residual"));
        assert_eq!(values(first), expected);
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let Some(device) = test_device() else { return };
    let (width, rows) = (130, 300);
    let (x, weight) = (numbers(rows * width, 1), vector(&numbers(width, 2), &device));
    let all = values(rms_norm(tensor(&x, width, &device), &weight, 1e-5));
    for row in [0, 17, 299] {
        let range = row * width..(row + 1) * width;
        let alone = values(rms_norm(tensor(&x[range.clone()], width, &device), &weight, 1e-5));
        assert_eq!(bits(&alone), bits(&all[range]));
    }
}

/// q, k and v lie side by side, so the rows of each are far apart.
#[test]
fn part_of_wider_rows_is_read_where_it_lies() {
    let Some(device) = test_device() else { return };
    let (x, weight) = (numbers(5 * 256, 1), numbers(64, 2));
    let part: Vec<f32> = x.chunks(256).flat_map(|row| &row[128..192]).copied().collect();
    let narrow = tensor(&x, 256, &device).narrow(1, 128, 64);
    let y = values(rms_norm(narrow, &vector(&weight, &device), 1e-5));
    assert_near(&y, &reference::rms_norm(&part, &weight, 1e-5), 1e-5, "narrow");
}

#[test]
fn no_rows_are_accepted() {
    let Some(device) = test_device() else { return };
    let y = rms_norm(tensor(&[], 8, &device), &vector(&[1.0; 8], &device), 1e-5);
    assert_eq!(y.dims(), [0, 8]);
}
