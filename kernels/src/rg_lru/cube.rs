//! The GPUs' version, one unit a channel of a sequence. The channel's state stays in a register
//! while the tokens pass.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::RgLru;
use crate::cube::{Rows, buffer, cubes, words_buffer};
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::states::cube::{StateLayout, States, Tokens};

const UNITS: usize = 64;

/// Takes the states over the tokens.
pub(crate) fn rg_lru(
    x: CubeTensor,
    gates: CubeTensor,
    unit: &RgLru,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> CubeTensor {
    let (tokens, channels) = (meta.num_tokens(), unit.channels());
    let [x, gates] = [x, gates].map(Rows::new);
    assert_eq!([x.rows, x.cols], [tokens, channels], "rg_lru: shape of x");
    assert_eq!([gates.rows, gates.cols], [tokens, 2 * channels], "rg_lru: shape of the gates");
    let y = x.sibling(x.rows, channels);
    if x.rows == 0 {
        return y;
    }
    let of_state = [unit.state_at, channels];
    let states = States::new(x.client(), x.device(), layer, meta, of_state, "rg_lru");
    let elements = |x: &Rows| x.stride() * x.lanes;
    states.launches(|num_seqs, layout| {
        let units = num_seqs * channels;
        let (x_stride, gates_stride) = (elements(&x), elements(&gates));
        let layout =
            LruLayoutLaunch::new(units, channels, unit.head_dim, x_stride, gates_stride, layout);
        // SAFETY: a unit beyond the channels does nothing. The shapes were checked, and the blocks
        // by `States`.
        unsafe {
            rg_lru_kernel::launch_unchecked(
                x.client(),
                cubes(units.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                x.arg(),
                gates.arg(),
                words_buffer(unit.rates.cube()),
                words_buffer(unit.gate_biases.cube()),
                words_buffer(states.plan()),
                words_buffer(states.pages()),
                buffer(&y),
                layout,
            );
        }
    });
    y
}

/// The numbers that all units of a launch share.
#[derive(CubeType, CubeLaunch)]
struct LruLayout {
    /// Units of the launch.
    units: usize,
    channels: usize,
    head_dim: usize,
    x_stride: usize,
    gates_stride: usize,
    states: StateLayout,
}

#[cube(launch_unchecked)]
fn rg_lru_kernel(
    x: &[f32],
    gates: &[f32],
    rates: &[f32],
    gate_biases: &[f32],
    plan: &[u32],
    pages: &mut [f32],
    y: &mut [f32],
    layout: LruLayout,
) {
    let unit = ABSOLUTE_POS;
    if unit >= layout.units {
        terminate!();
    }
    let (channel, channels) = (unit % layout.channels, layout.channels);
    let tokens = Tokens::read(plan, &layout.states, unit / channels);
    let dim = layout.head_dim;
    let of_input = channel / dim * dim * 2usize + channel % dim;
    let of_recurrence = of_input + dim;
    let rate = rates[channel];
    let (input_bias, bias) = (gate_biases[of_input], gate_biases[of_recurrence]);
    let mut state = 0.0f32.runtime();
    if tokens.has_state() {
        state = pages[tokens.state_before(plan, &layout.states) + channel];
    }
    for t in 0..tokens.count {
        let token = tokens.first_row + t;
        let row = token * layout.gates_stride;
        let input_gate = sigmoid(gates[row + of_input] + input_bias);
        let log_a = -(rate * sigmoid(gates[row + of_recurrence] + bias));
        let mut factor = one_minus_exp(log_a + log_a).sqrt();
        if tokens.is_first(t) {
            factor = 1.0f32;
        }
        let input = x[token * layout.x_stride + channel] * input_gate;
        state = fma(state, log_a.exp(), input * factor);
        y[token * channels + channel] = state;
        if tokens.is_kept(&layout.states, t) {
            let at = tokens.state_after(plan, &layout.states, t);
            pages[at + channel] = state;
        }
    }
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0f32 / (1.0f32 + (-x).exp())
}

/// Returns `1 − e^x` for x of at most 0, within 1e-5 of its size, also near 0.
#[cube]
fn one_minus_exp(x: f32) -> f32 {
    let series = -x * (1.0f32 + x * (0.5f32 + x * comptime!(1.0f32 / 6.0).runtime()));
    select(x > -0.02f32, series, 1.0f32 - x.exp())
}
