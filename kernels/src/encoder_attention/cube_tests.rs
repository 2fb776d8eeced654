//! On a GPU: the results agree with the reference, and a token depends on its sequence alone.

use super::tests::{Case, reference};
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values};

#[test]
fn ragged_batches_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for case in Case::all(4).into_iter().chain(Case::with_biases(4)) {
        let Case { heads: [num_heads, num_kv_heads], head_dim, .. } = case;
        let [q, k, v] = case.rows();
        let of = |rows: &[f32], heads: usize| tensor(rows, heads * head_dim, &device);
        let params = case.params_on(&device);
        let run = |lens: &[usize], [q, k, v]: [&[f32]; 3]| {
            let meta = Case::meta(lens);
            let (q, k, v) = (of(q, num_heads), of(k, num_kv_heads), of(v, num_kv_heads));
            values(encoder_attention(q, k, v, num_kv_heads, &meta, &params))
        };
        let all = run(&case.lens, [&q, &k, &v]);
        assert_near(&all, &reference(&case, &params), 2e-5, &format!("{case:?}"));
        let first = case.lens[0];
        let [q_len, kv_len] = [num_heads, num_kv_heads].map(|heads| first * heads * head_dim);
        let alone = run(&[first], [&q[..q_len], &k[..kv_len], &v[..kv_len]]);
        assert_eq!(bits(&alone), bits(&all[..q_len]), "{case:?}");
    }
}
