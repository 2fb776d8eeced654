//! Rows of a tensor by index: the hidden states whose logits are needed.
//!
//! x `[num_tokens, features]` f32, result `[rows.len(), features]` f32. Exact. Bytes moved:
//! `2 · rows.len() · features · 4`.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;

/// Returns rows `rows` of `x`, in that order. A row may be taken twice.
///
/// # Panics
/// If an index is not below the number of rows of `x`.
#[must_use]
pub fn select_rows(x: Tensor<2>, rows: &[u32]) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::select_rows(x.into_dispatch(), rows))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn rows_come_in_the_order_asked_for() {
        let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::flex());
        let y: Vec<f32> = select_rows(x, &[2, 0, 2]).into_data().try_to_vec().unwrap();
        assert_eq!(y, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
    }

    #[test]
    fn no_rows_give_an_empty_tensor() {
        let x = Tensor::<2>::from_data([[1.0, 2.0]], &Device::flex());
        assert_eq!(select_rows(x, &[]).dims(), [0, 2]);
    }
}
