//! The gather on a GPU.

use super::*;
use crate::cube::test_device::{numbers, tensor, test_device, values};

#[test]
fn rows_come_in_the_order_asked_for() {
    let Some(device) = test_device() else { return };
    for width in [3, 64] {
        let x = numbers(4 * width, 1);
        let y = values(select_rows(tensor(&x, width, &device), &[2, 0, 2]));
        let row = |r: usize| &x[r * width..(r + 1) * width];
        assert_eq!(y, [row(2), row(0), row(2)].concat());
        assert_eq!(select_rows(tensor(&x, width, &device), &[]).dims(), [0, width]);
    }
}
