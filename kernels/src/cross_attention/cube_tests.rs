//! On a GPU: the results agree with the reference, and a token does not depend on the others.

use super::tests::{CASES, params, reference, rows};
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values};

#[test]
fn all_keys_are_read() {
    let Some(device) = test_device() else { return };
    for [tokens, keys, heads, kv_heads, units] in CASES {
        let case = [tokens, keys, heads, kv_heads, 4 * units];
        let ([q, k, v], dim) = (rows(case), case[4]);
        let run = |q: &[f32]| {
            let [k, v] = [&k, &v].map(|rows| tensor(rows, kv_heads * dim, &device));
            values(cross_attention(tensor(q, heads * dim, &device), k, v, kv_heads, &params(case)))
        };
        let all = run(&q);
        assert_near(&all, &reference(case), 2e-5, &format!("{case:?}"));
        let width = heads * dim;
        assert_eq!(bits(&run(&q[..width])), bits(&all[..width]), "{case:?}");
    }
}
