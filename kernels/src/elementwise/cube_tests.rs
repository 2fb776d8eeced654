//! On a GPU: the results agree with the reference.

use super::*;
use crate::cube::test_device::{assert_near, bits, numbers, tensor, test_device, values};

/// Rows and columns, which fill vectors or do not.
const SHAPES: [[usize; 2]; 4] = [[1, 1], [3, 6], [2, 130], [5, 512]];

#[test]
fn maps_of_any_width_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for [rows, cols] in SHAPES {
        for size in [0.01, 40.0] {
            let x: Vec<f32> = numbers(rows * cols, 1).iter().map(|x| x * size).collect();
            for map in [ElementMap::Scale(2.5), ElementMap::SoftCap(5.0), ElementMap::Clamp(7.0)] {
                let y = values(super::mapped(tensor(&x, cols, &device), map));
                let exact = reference::map(&x, map);
                let bound = 1e-5 * f64::from(size).min(5.0);
                assert_near(&y, &exact, bound, &format!("{map:?} of {rows} rows of {cols}"));
            }
        }
    }
}

#[test]
fn sums_and_rows_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for [rows, cols] in SHAPES {
        let (x, y) = (numbers(rows * cols, 1), numbers(rows * cols, 2));
        let given = || (tensor(&x, cols, &device), tensor(&y, cols, &device));
        let exact = reference::add_scaled(&x, &y, -0.7);
        let (left, right) = given();
        assert_near(&values(add_scaled(left, right, -0.7)), &exact, 1e-6, "a scaled sum");
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let (left, right) = given();
        assert_eq!(bits(&values(add(left, right))), bits(&expected));
        let factors: Vec<f32> = (0..rows).map(|row| row as f32 - 1.5).collect();
        let expected: Vec<f32> = x.iter().enumerate().map(|(i, x)| x * factors[i / cols]).collect();
        assert_eq!(values(scale_rows(given().0, &factors)), expected);
    }
}

#[test]
fn large_numbers_are_limited() {
    let Some(device) = test_device() else { return };
    let x = [-1e30, 1e30, 200.0, -200.0];
    for map in [ElementMap::SoftCap(5.0), ElementMap::Clamp(5.0)] {
        let y = values(super::mapped(tensor(&x, 4, &device), map));
        assert_near(&y, &[-5.0, 5.0, 5.0, -5.0], 1e-5, &format!("{map:?}"));
    }
}

/// q, k and v lie side by side, so the rows of each are far apart.
#[test]
fn part_of_wider_rows_is_read_where_it_lies() {
    let Some(device) = test_device() else { return };
    let x = numbers(5 * 256, 1);
    let part: Vec<f32> = x.chunks(256).flat_map(|row| &row[128..192]).copied().collect();
    let narrow = || tensor(&x, 256, &device).narrow(1, 128, 64);
    let doubled: Vec<f32> = part.iter().map(|x| x * 2.0).collect();
    assert_eq!(values(scale(narrow(), 2.0)), doubled);
    assert_eq!(values(add(narrow(), narrow())), doubled);
    assert_eq!(values(scale_rows(narrow(), &[2.0; 5])), doubled);
}

#[test]
fn no_rows_are_accepted() {
    let Some(device) = test_device() else { return };
    assert_eq!(scale(tensor(&[], 8, &device), 2.0).dims(), [0, 8]);
    assert_eq!(scale_rows(tensor(&[], 8, &device), &[]).dims(), [0, 8]);
}
