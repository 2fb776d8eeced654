//! The GPUs' version, one unit a channel of a sequence. The window stays in registers while the
//! tokens pass.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::CausalConv;
use crate::activation::Activation;
use crate::activation::cube::{Function, activated, function};
use crate::cube::{Rows, buffer, cubes, words_buffer};
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::states::cube::{StateLayout, States, Tokens};

const UNITS: usize = 64;

/// Most taps whose loop is written out, so that they are in registers.
const UNROLLED_MAX: usize = 16;

/// Convolves.
pub(crate) fn causal_conv(
    x: CubeTensor,
    column: usize,
    conv: &CausalConv,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> CubeTensor {
    let x = Rows::new(x);
    assert_eq!(x.rows, meta.num_tokens(), "causal_conv: rows of x");
    assert!(column + conv.channels <= x.cols, "causal_conv: columns of x");
    let y = x.sibling(x.rows, conv.channels);
    if x.rows == 0 {
        return y;
    }
    let of_state = [conv.state_at, CausalConv::state_len(conv.channels, conv.kernel)];
    let states = States::new(x.client(), x.device(), layer, meta, of_state, "causal_conv");
    states.launches(|num_seqs, layout| {
        let units = num_seqs * conv.channels;
        let layout =
            ConvLayoutLaunch::new(units, conv.channels, x.stride() * x.lanes, column, layout);
        // SAFETY: a unit beyond the channels does nothing. The rows and columns of x were checked,
        // and the blocks by `States`.
        unsafe {
            conv_kernel::launch_unchecked(
                x.client(),
                cubes(units.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                x.arg(),
                words_buffer(conv.weight.cube()),
                words_buffer(conv.bias.cube()),
                words_buffer(states.plan()),
                words_buffer(states.pages()),
                buffer(&y),
                layout,
                function(conv.activation.unwrap_or(Activation::Identity)),
                conv.kernel,
            );
        }
    });
    y
}

/// The numbers that all units of a launch share.
#[derive(CubeType, CubeLaunch)]
struct ConvLayout {
    /// Units of the launch.
    units: usize,
    channels: usize,
    x_stride: usize,
    /// The first column of x.
    column: usize,
    states: StateLayout,
}

#[cube(launch_unchecked)]
fn conv_kernel(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    plan: &[u32],
    pages: &mut [f32],
    y: &mut [f32],
    layout: ConvLayout,
    function: Function,
    #[comptime] kernel: usize,
) {
    let unit = ABSOLUTE_POS;
    if unit >= layout.units {
        terminate!();
    }
    let is_unrolled = comptime!(kernel <= UNROLLED_MAX);
    let before = comptime!(kernel - 1);
    let (channel, channels) = (unit % layout.channels, layout.channels);
    let tokens = Tokens::read(plan, &layout.states, unit / channels);
    // The tokens before the next one, the oldest first. No array is empty.
    let mut window = Array::<f32>::new(comptime!(kernel.max(2) - 1));
    #[unroll(is_unrolled)]
    for i in 0..before {
        window[i] = 0.0f32;
        if tokens.has_state() {
            let at = tokens.state_before(plan, &layout.states);
            window[i] = pages[at + i * channels + channel];
        }
    }
    for t in 0..tokens.count {
        let token = tokens.first_row + t;
        let newest = x[token * layout.x_stride + layout.column + channel];
        let mut sum = bias[channel];
        #[unroll(is_unrolled)]
        for i in 0..before {
            sum = fma(weight[i * channels + channel], window[i], sum);
        }
        sum = fma(weight[before * channels + channel], newest, sum);
        y[token * channels + channel] = activated_number(sum, &function);
        if comptime!(before > 0) {
            #[unroll(is_unrolled)]
            for i in 1..before {
                window[i - 1] = window[i];
            }
            window[comptime!(kernel.max(2) - 2)] = newest;
        }
        if tokens.is_kept(&layout.states, t) {
            let at = tokens.state_after(plan, &layout.states, t);
            #[unroll(is_unrolled)]
            for i in 0..before {
                pages[at + i * channels + channel] = window[i];
            }
        }
    }
}

#[cube]
fn activated_number(x: f32, function: &Function) -> f32 {
    let x = Vector::<f32, Const<1>>::new(x);
    activated::<Const<1>>(x, function).extract(0usize)
}
