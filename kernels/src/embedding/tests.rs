//! Rows are read as they were written.

use burn::tensor::Device;
use half::{bf16, f16};

use super::*;

fn rows(table: &EmbeddingTable, ids: &[u32]) -> Vec<f32> {
    embedding(table, ids).into_data().try_to_vec().unwrap()
}

#[test]
fn rows_are_copied_or_rounded_once() {
    let values: Vec<f32> = (0..12).map(|i| (i as f32 * 0.7).sin()).collect();
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let view = WeightView::F32(&values);
        let table = EmbeddingTable::new(view, 4, 3, dtype, &Device::flex()).unwrap();
        let kept = |x: &f32| match dtype {
            WeightDtype::F32 => *x,
            WeightDtype::F16 => f16::from_f32(*x).to_f32(),
            WeightDtype::Bf16 => bf16::from_f32(*x).to_f32(),
        };
        let expected: Vec<f32> =
            [&values[9..12], &values[..3], &values[9..12]].concat().iter().map(kept).collect();
        assert_eq!(rows(&table, &[3, 0, 3]), expected);
        assert_eq!(embedding(&table, &[]).dims(), [0, 3]);
    }
}

/// Also rows of a vocabulary that fills no panel, and of a width that fills no tile or vector.
#[test]
fn an_output_layer_gives_the_rows_that_it_was_packed_from() {
    let (vocab, hidden) = (75, 1003);
    let values: Vec<f32> = (0..vocab * hidden).map(|i| (i as f32 * 0.13).sin()).collect();
    let ids: Vec<u32> = (0..300).map(|i| i * 7 % vocab as u32).collect();
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let (view, device) = (WeightView::F32(&values), Device::flex());
        let table = EmbeddingTable::new(view, vocab, hidden, dtype, &device).unwrap();
        let weight = LinearWeight::pack(&[view], hidden, dtype, &device).unwrap();
        let tied: Vec<f32> = tied_embedding(&weight, &ids).into_data().try_to_vec().unwrap();
        assert_eq!(tied, rows(&table, &ids));
        assert_eq!(tied_embedding(&weight, &[]).dims(), [0, hidden]);
    }
}

#[test]
fn a_table_of_another_size_is_refused() {
    let view = WeightView::F32(&[0.0; 11]);
    let error = EmbeddingTable::new(view, 4, 3, WeightDtype::F32, &Device::flex()).unwrap_err();
    assert_eq!(error.to_string(), "embedding table: view holds 11 elements, but 12 are needed");
    let view = WeightView::F32(&[0.0; 12]);
    let error = EmbeddingTable::new(view, 4, 3, WeightDtype::F16, &Device::flex()).unwrap_err();
    assert_eq!(error.to_string(), "embedding table: float16 has no kernels on device cpu");
}

#[test]
#[should_panic(expected = "token id 4 is not below 4")]
fn a_token_outside_the_table_is_a_bug() {
    let view = WeightView::F32(&[0.0; 12]);
    let table = EmbeddingTable::new(view, 4, 3, WeightDtype::F32, &Device::flex()).unwrap();
    let _ = embedding(&table, &[4]);
}
