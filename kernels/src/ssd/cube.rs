//! The GPUs' version: the factors of each token and head, then the recurrence of
//! [`matrix`](crate::states::cube::matrix) with `B` as keys and `C` as queries.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Ssd, SsdSizes};
use crate::cube::{Rows, cubes, softplus, words_buffer};
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::states::cube::States;
use crate::states::cube::matrix::{MatrixHeads, MatrixInputs, MatrixRule, advance};

const UNITS: usize = 64;

/// Takes the states over the tokens.
pub(crate) fn ssd(
    xbc: CubeTensor,
    dt: CubeTensor,
    column: usize,
    model: &Ssd,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> CubeTensor {
    let SsdSizes { num_heads, head_dim, state_size, num_groups } = model.sizes;
    let (xbc, dt) = (Rows::new(xbc), Rows::new(dt));
    let shape = [meta.num_tokens(), model.columns()];
    assert_eq!([xbc.rows, xbc.cols], shape, "ssd: shape of x, B and C");
    assert_eq!(dt.rows, xbc.rows, "ssd: rows of dt");
    assert!(column + num_heads <= dt.cols, "ssd: columns of dt");
    if xbc.rows == 0 {
        return xbc.sibling(0, model.width());
    }
    let of_state = [model.state_at, Ssd::state_len(num_heads, head_dim, state_size)];
    let states = States::new(xbc.client(), xbc.device(), layer, meta, of_state, "ssd");
    let factors = xbc.client().empty(2 * xbc.rows * num_heads * size_of::<f32>());
    let [least, most] = model.dt_limit;
    // SAFETY: a unit beyond the heads of all tokens does nothing, and dt has their columns.
    unsafe {
        ssd_factors_kernel::launch_unchecked(
            xbc.client(),
            cubes((xbc.rows * num_heads).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            dt.arg(),
            words_buffer(model.a.cube()),
            words_buffer(model.dt_bias.cube()),
            words_buffer(&factors),
            xbc.rows * num_heads,
            num_heads,
            dt.stride() * dt.lanes,
            column,
            model.dt_scale,
            least,
            most,
        );
    }
    let (width, keys) = (model.width(), num_groups * state_size);
    let heads = MatrixHeads {
        num_key_heads: num_groups,
        num_heads,
        key_dim: state_size,
        value_dim: head_dim,
        columns: [width + keys, width, 0],
    };
    let inputs = MatrixInputs {
        keys: &xbc,
        values: &xbc,
        factors: &factors,
        has_factors_by_token: true,
        skip: Some(&model.d),
    };
    advance(MatrixRule::Value, heads, &inputs, &states)
}

/// Writes `exp(Δ · a)` and Δ of each token and head.
#[cube(launch_unchecked)]
fn ssd_factors_kernel(
    dt: &[f32],
    a: &[f32],
    dt_bias: &[f32],
    factors: &mut [f32],
    units: usize,
    num_heads: usize,
    stride: usize,
    column: usize,
    dt_scale: f32,
    least: f32,
    most: f32,
) {
    let unit = ABSOLUTE_POS;
    if unit >= units {
        terminate!();
    }
    let (token, head) = (unit / num_heads, unit % num_heads);
    let biased = fma(dt[token * stride + column + head], dt_scale, dt_bias[head]);
    let mut delta = softplus(biased);
    // A NaN stays one.
    delta = select(delta < least, least, delta);
    delta = select(delta > most, most, delta);
    factors[2 * unit] = (delta * a[head]).exp();
    factors[2 * unit + 1] = delta;
}
