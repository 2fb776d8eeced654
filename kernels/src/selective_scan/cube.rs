//! The GPUs' version, one unit a channel of a sequence. The channel's state stays in registers
//! while the tokens pass.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{SelectiveScan, Sizes};
use crate::cube::{Rows, buffer, cubes, softplus, words_buffer};
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::states::cube::{StateLayout, States, Tokens};

const UNITS: usize = 64;

/// Most elements of a channel's state whose loop is written out, so that they are in registers.
const UNROLLED_MAX: usize = 32;

/// Takes the states over the tokens.
pub(crate) fn selective_scan(
    x: CubeTensor,
    dt: CubeTensor,
    b: CubeTensor,
    c: CubeTensor,
    scan: &SelectiveScan,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> CubeTensor {
    let Sizes { channels, state_size } = scan.sizes;
    let [x, dt, b, c] = [x, dt, b, c].map(Rows::new);
    let shape = |x: &Rows| [x.rows, x.cols];
    let (of_channels, of_state) = ([meta.num_tokens(), channels], [meta.num_tokens(), state_size]);
    assert_eq!([shape(&x), shape(&dt)], [of_channels; 2], "selective_scan: shapes of x and dt");
    assert_eq!([shape(&b), shape(&c)], [of_state; 2], "selective_scan: shapes of b and c");
    let y = x.sibling(x.rows, channels);
    if x.rows == 0 {
        return y;
    }
    let of_state = [scan.state_at, SelectiveScan::state_len(channels, state_size)];
    let states = States::new(x.client(), x.device(), layer, meta, of_state, "selective_scan");
    let elements = |x: &Rows| x.stride() * x.lanes;
    states.launches(|num_seqs, layout| {
        let units = num_seqs * channels;
        let (x_stride, dt_stride) = (elements(&x), elements(&dt));
        let (b_stride, c_stride) = (elements(&b), elements(&c));
        let layout =
            ScanLayoutLaunch::new(units, channels, x_stride, dt_stride, b_stride, c_stride, layout);
        // SAFETY: a unit beyond the channels does nothing. The shapes were checked, and the blocks
        // by `States`.
        unsafe {
            scan_kernel::launch_unchecked(
                x.client(),
                cubes(units.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                x.arg(),
                dt.arg(),
                b.arg(),
                c.arg(),
                words_buffer(scan.a.cube()),
                words_buffer(scan.d.cube()),
                words_buffer(scan.dt_bias.cube()),
                words_buffer(states.plan()),
                words_buffer(states.pages()),
                buffer(&y),
                layout,
                state_size,
            );
        }
    });
    y
}

/// The numbers that all units of a launch share.
#[derive(CubeType, CubeLaunch)]
struct ScanLayout {
    /// Units of the launch.
    units: usize,
    channels: usize,
    x_stride: usize,
    dt_stride: usize,
    b_stride: usize,
    c_stride: usize,
    states: StateLayout,
}

#[cube(launch_unchecked)]
fn scan_kernel(
    x: &[f32],
    dt: &[f32],
    b: &[f32],
    c: &[f32],
    a: &[f32],
    d: &[f32],
    dt_bias: &[f32],
    plan: &[u32],
    pages: &mut [f32],
    y: &mut [f32],
    layout: ScanLayout,
    #[comptime] state_size: usize,
) {
    let unit = ABSOLUTE_POS;
    if unit >= layout.units {
        terminate!();
    }
    let is_unrolled = comptime!(state_size <= UNROLLED_MAX);
    let (channel, channels) = (unit % layout.channels, layout.channels);
    let tokens = Tokens::read(plan, &layout.states, unit / channels);
    let mut state = Array::<f32>::new(state_size);
    #[unroll(is_unrolled)]
    for n in 0..state_size {
        state[n] = 0.0f32;
        if tokens.has_state() {
            let at = tokens.state_before(plan, &layout.states);
            state[n] = pages[at + n * channels + channel];
        }
    }
    for t in 0..tokens.count {
        let token = tokens.first_row + t;
        let x = x[token * layout.x_stride + channel];
        let delta = softplus(dt[token * layout.dt_stride + channel] + dt_bias[channel]);
        let input = delta * x;
        let mut sum = 0.0f32.runtime();
        #[unroll(is_unrolled)]
        for n in 0..state_size {
            let decay = (delta * a[n * channels + channel]).exp();
            let next = fma(input, b[token * layout.b_stride + n], state[n] * decay);
            state[n] = next;
            sum = fma(next, c[token * layout.c_stride + n], sum);
        }
        y[token * channels + channel] = fma(x, d[channel], sum);
        if tokens.is_kept(&layout.states, t) {
            let at = tokens.state_after(plan, &layout.states, t);
            #[unroll(is_unrolled)]
            for n in 0..state_size {
                pages[at + n * channels + channel] = state[n];
            }
        }
    }
}
