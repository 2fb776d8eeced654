//! The tensors of Mamba's state-space models.

use super::{Tensors, add_conv};
use crate::model::config::{Mamba2Config, MambaConfig, MambaNorms};
use crate::model::layers::{MAMBA_NORM_NAMES, Part};

/// Adds the tensors of a state-space model. `module` returns the full name of one of its modules.
pub(super) fn add(
    tensors: &mut Tensors,
    mamba: &MambaConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let MambaConfig { channels, state_size, time_step_rank, conv_kernel, .. } = *mamba;
    let widths = [time_step_rank, state_size, state_size];
    let part = |name, outputs| Part::new(module(name), outputs);
    tensors.part(&part("in_proj", 2 * channels), hidden, mamba.proj_bias);
    add_conv(tensors, &module("conv1d"), [channels, conv_kernel], mamba.conv_bias);
    tensors.part(&part("x_proj", widths.iter().sum()), channels, false);
    if matches!(mamba.norms, MambaNorms::Weighted { .. }) {
        for (name, width) in MAMBA_NORM_NAMES.iter().zip(widths) {
            tensors.weight(&module(name), &[width]);
        }
    }
    tensors.part(&part("dt_proj", channels), time_step_rank, true);
    tensors.0.push((module("A_log"), vec![channels, state_size]));
    tensors.0.push((module("D"), vec![channels]));
    tensors.part(&part("out_proj", hidden), channels, mamba.proj_bias);
}

/// Adds the tensors of Mamba 2.
pub(super) fn add_2(
    tensors: &mut Tensors,
    mamba: &Mamba2Config,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let (inner, conv) = (mamba.inner_size(), [mamba.conv_size(), mamba.conv_kernel]);
    let in_proj = Part::new(module("in_proj"), mamba.projected_size());
    tensors.part(&in_proj, hidden, mamba.in_bias);
    add_conv(tensors, &module("conv1d"), conv, mamba.conv_bias);
    for name in ["A_log", "D", "dt_bias"] {
        tensors.0.push((module(name), vec![mamba.num_heads]));
    }
    if mamba.norm.is_some() {
        tensors.weight(&module("norm"), &[inner]);
    }
    tensors.part(&Part::new(module("out_proj"), hidden), inner, mamba.out_bias);
}
