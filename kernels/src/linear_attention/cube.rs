//! The GPUs' version, by the recurrence of [`matrix`](crate::states::cube::matrix). The queries and
//! keys of the gated delta rule are normalised before it, and the factors computed.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Shape, Slice};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::prepare::EPS;
use super::{GatedDeltaRule, KimiDeltaRule, LightningAttention, LinearHeads};
use crate::cube::{Norm, Rows, cubes, normed, softplus, words_buffer};
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::states::cube::States;
use crate::states::cube::matrix::{MatrixHeads, MatrixInputs, MatrixRule, advance};

const UNITS: usize = 64;

/// Takes the states of the gated delta rule over the tokens.
pub(crate) fn gated_delta_rule(
    qkv: CubeTensor,
    gates: CubeTensor,
    rule: &GatedDeltaRule,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> CubeTensor {
    let (heads, tokens) = (rule.heads, meta.num_tokens());
    let LinearHeads { num_key_heads, num_heads, key_dim, .. } = heads;
    let keys = (tokens > 0).then(|| normalized(&qkv, rule, tokens));
    let (qkv, gates) = (Rows::new(qkv), Rows::new(gates));
    assert_eq!([qkv.rows, qkv.cols], [tokens, heads.inputs()], "gated_delta_rule: shape of qkv");
    let of_gates = [tokens, 2 * num_heads];
    assert_eq!([gates.rows, gates.cols], of_gates, "gated_delta_rule: shape of gates");
    let Some(keys) = keys else { return qkv.sibling(0, heads.outputs()) };
    let of_state = [rule.state_at, heads.state_len()];
    let states = States::new(qkv.client(), qkv.device(), layer, meta, of_state, "gated_delta_rule");
    let factors = qkv.client().empty(2 * tokens * num_heads * size_of::<f32>());
    // SAFETY: a unit beyond the heads of all tokens does nothing, and the gates have their columns.
    unsafe {
        delta_factors_kernel::launch_unchecked(
            qkv.client(),
            cubes((tokens * num_heads).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            gates.arg(),
            words_buffer(rule.a_log.cube()),
            words_buffer(rule.dt_bias.cube()),
            words_buffer(&factors),
            tokens * num_heads,
            num_heads,
            gates.stride() * gates.lanes,
            rule.beta_max,
        );
    }
    let of_keys = num_key_heads * key_dim;
    let inputs = MatrixInputs {
        keys: &keys,
        values: &qkv,
        factors: &factors,
        has_factors_by_token: true,
        skip: None,
    };
    let heads = matrix_heads(heads, [0, of_keys, 2 * of_keys]);
    advance(MatrixRule::Delta, heads, &inputs, &states)
}

/// Is never called: a rule is not made for a GPU.
pub(crate) fn kimi_delta_rule(
    _: CubeTensor,
    _: CubeTensor,
    _: CubeTensor,
    _: &KimiDeltaRule,
    _: &mut KvLayer,
    _: &AttentionMetadata,
) -> CubeTensor {
    unreachable!("`KimiDeltaRule::new` refuses GPUs")
}

/// Takes the states of lightning attention over the tokens.
pub(crate) fn lightning_attention(
    qkv: CubeTensor,
    attention: &LightningAttention,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> CubeTensor {
    let (heads, qkv) = (attention.heads, Rows::new(qkv));
    let shape = [meta.num_tokens(), heads.inputs()];
    assert_eq!([qkv.rows, qkv.cols], shape, "lightning_attention: shape of qkv");
    if qkv.rows == 0 {
        return qkv.sibling(0, heads.outputs());
    }
    let of_state = [attention.state_at, heads.state_len()];
    let states =
        States::new(qkv.client(), qkv.device(), layer, meta, of_state, "lightning_attention");
    let of_keys = heads.num_key_heads * heads.key_dim;
    let inputs = MatrixInputs {
        keys: &qkv,
        values: &qkv,
        factors: attention.factors.cube(),
        has_factors_by_token: false,
        skip: None,
    };
    let heads = matrix_heads(heads, [0, of_keys, 2 * of_keys]);
    advance(MatrixRule::Value, heads, &inputs, &states)
}

fn matrix_heads(heads: LinearHeads, columns: [usize; 3]) -> MatrixHeads {
    let LinearHeads { num_key_heads, num_heads, key_dim, value_dim } = heads;
    MatrixHeads { num_key_heads, num_heads, key_dim, value_dim, columns }
}

/// Returns the queries and keys of all tokens, `[tokens, 2 · num_key_heads · key_dim]`, divided by
/// their lengths, and queries by `√key_dim`.
fn normalized(qkv: &CubeTensor, rule: &GatedDeltaRule, tokens: usize) -> Rows {
    let LinearHeads { num_key_heads, key_dim, .. } = rule.heads;
    let width = 2 * num_key_heads * key_dim;
    let keys = [Slice::from(0..tokens), Slice::from(0..width)];
    let keys = CubeBackend::float_slice(qkv.clone(), &keys);
    let keys = CubeBackend::float_reshape(keys, Shape::new([tokens * 2 * num_key_heads, key_dim]));
    // The norm divides by the root of the mean of squares, which is that of their sum over
    // `key_dim`. The weights make up for it.
    let eps = EPS / key_dim as f32;
    let norm = Norm { weight: Some(&rule.key_scales), bias: None, eps, is_centered: false };
    Rows::new(CubeBackend::float_reshape(normed(keys, norm), Shape::new([tokens, width])))
}

/// Writes the factor of the state and that of the change, of each token and head.
#[cube(launch_unchecked)]
fn delta_factors_kernel(
    gates: &[f32],
    a_log: &[f32],
    dt_bias: &[f32],
    factors: &mut [f32],
    units: usize,
    num_heads: usize,
    stride: usize,
    beta_max: f32,
) {
    let unit = ABSOLUTE_POS;
    if unit >= units {
        terminate!();
    }
    let (token, head) = (unit / num_heads, unit % num_heads);
    let (b, a) = (gates[token * stride + head], gates[token * stride + num_heads + head]);
    let rate = softplus(a + dt_bias[head]);
    factors[2 * unit] = (-a_log[head].exp() * rate).exp();
    factors[2 * unit + 1] = beta_max / (1.0f32 + (-b).exp());
}
