//! On a GPU: the results agree with the reference, and rows of no adapter keep their bytes.

use super::*;
use crate::cube::test_device::{assert_near, numbers, tensor, test_device, values};

#[test]
fn two_adapters_in_one_batch_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let (inputs, outputs, rows) = (37, 20, 5);
    let x = numbers(rows * inputs, 1);
    let matrices: Vec<_> = [(3, 0..12), (4, 12..20)]
        .into_iter()
        .map(|(rank, range)| {
            (numbers(rank * inputs, rank), numbers(rank * range.len(), 9 + rank), rank, range.start)
        })
        .collect();
    let packed: Vec<LoraWeights> = matrices
        .iter()
        .map(|(a, b, rank, first_output)| {
            let pair = LoraPair { a, b, rank: *rank, scale: 0.5, first_output: *first_output };
            LoraWeights::pack(&[pair], [outputs, inputs], WeightDtype::F32, &device).unwrap()
        })
        .collect();
    let segments = [
        LoraSegment { weights: &packed[0], rows: &[4, 0] },
        LoraSegment { weights: &packed[1], rows: &[2] },
    ];
    let zeros = vec![0.0; rows * outputs];
    let y =
        values(add_lora(tensor(&zeros, outputs, &device), tensor(&x, inputs, &device), &segments));
    let mut exact = vec![0.0; rows * outputs];
    for (segment, (a, b, rank, first)) in segments.iter().zip(&matrices) {
        for row in segment.rows {
            let row = *row as usize;
            let added = reference::product(&x[row * inputs..][..inputs], a, b, *rank, 0.5);
            exact[row * outputs + first..][..added.len()].copy_from_slice(&added);
        }
    }
    assert_near(&y, &exact, 1e-4, "two adapters");
}

#[test]
fn rows_are_replaced() {
    let Some(device) = test_device() else { return };
    let (y, x) = (numbers(12, 1), numbers(6, 2));
    let set = values(set_rows(tensor(&y, 3, &device), tensor(&x, 3, &device), &[3, 1]));
    assert_eq!(set, [&y[..3], &x[3..], &y[6..9], &x[..3]].concat());
}

/// A replay could not renew the rows, which only the caller knows.
#[test]
fn a_step_with_adapters_is_not_recorded() {
    let Some(device) = test_device() else { return };
    let (a, b) = ([1.0; 6], [1.0; 8]);
    let pair = LoraPair { a: &a, b: &b, rank: 2, scale: 1.0, first_output: 0 };
    let weights = LoraWeights::pack(&[pair], [4, 3], WeightDtype::F32, &device).unwrap();
    let (x, y) = (tensor(&numbers(6, 1), 3, &device), tensor(&numbers(8, 2), 4, &device));
    for (rows, expected) in [(&[][..], false), (&[1][..], true)] {
        let segments = [LoraSegment { weights: &weights, rows }];
        let run = || add_lora(y.clone(), x.clone(), &segments);
        let (_, is_of_caller) = crate::cube::caller_numbers::noted(run);
        assert_eq!(is_of_caller, expected, "{rows:?}");
    }
    let run = || set_rows(y.clone(), tensor(&numbers(4, 3), 4, &device), &[1]);
    assert!(crate::cube::caller_numbers::noted(run).1);
}
