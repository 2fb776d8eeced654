//! The tensors of mixers that carry a state.

use super::{Tensors, add_conv};
use crate::model::config::{
    DeltaNetConfig, GriffinConfig, KimiDeltaConfig, LightningConfig, RecurrentConfig,
    ShortConvConfig,
};
use crate::model::layers::kimi_delta::{self, KimiParts};
use crate::model::layers::{Part, delta_net, griffin, lightning, short_conv};

/// Adds the tensors of `mixer`. `module` returns the full name of a module of the layer.
pub(super) fn add(
    tensors: &mut Tensors,
    mixer: &RecurrentConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    match mixer {
        RecurrentConfig::DeltaNet(config) => add_delta_net(tensors, config, hidden, module),
        RecurrentConfig::ShortConv(config) => add_short_conv(tensors, config, hidden, module),
        RecurrentConfig::Lightning(config) => add_lightning(tensors, config, hidden, module),
        RecurrentConfig::Griffin(config) => add_griffin(tensors, config, hidden, module),
        RecurrentConfig::Kimi(config) => add_kimi(tensors, config, hidden, module),
    }
}

fn add_delta_net(
    tensors: &mut Tensors,
    config: &DeltaNetConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    for part in delta_net::parts(config, &module).iter().flatten() {
        tensors.part(part, hidden, false);
    }
    for (name, channels) in config.convs() {
        add_conv(tensors, &module(name), [channels, config.kernel], false);
    }
    for name in [delta_net::A_LOG, delta_net::DT_BIAS] {
        tensors.0.push((module(name), vec![config.num_heads]));
    }
    tensors.weight(&module(config.modules.norm()), &[config.value_dim]);
    let out = Part::new(module(config.modules.out()), hidden);
    tensors.part(&out, config.values(), false);
}

fn add_short_conv(
    tensors: &mut Tensors,
    config: &ShortConvConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let ShortConvConfig { channels, kernel, bias, .. } = *config;
    tensors.part(&Part::new(module(short_conv::IN), 3 * channels), hidden, bias);
    add_conv(tensors, &module(short_conv::CONV), [channels, kernel], bias);
    tensors.part(&Part::new(module(short_conv::OUT), hidden), channels, bias);
}

fn add_lightning(
    tensors: &mut Tensors,
    config: &LightningConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let (names, width) = (config.names, config.width());
    tensors.part(&lightning::qkv(config, &module), hidden, config.qkv_bias);
    for norm in names.head_norms.iter().filter(|_| config.has_head_norms) {
        tensors.weight(&module(norm), &[config.head_dim]);
    }
    tensors.weight(&module(names.norm), &[width]);
    tensors.part(&Part::new(module(names.gate), width), hidden, false);
    tensors.part(&Part::new(module(names.out), hidden), width, false);
}

fn add_kimi(
    tensors: &mut Tensors,
    config: &KimiDeltaConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let KimiParts { qkv, forget, b, gate, out } = KimiParts::of(config, hidden, &module);
    for part in qkv.iter().chain([&b]) {
        tensors.part(part, hidden, false);
    }
    for (part, inputs) in forget.iter().chain(&gate) {
        tensors.part(part, *inputs, false);
    }
    let module = |name: &str| module(&config.module(name));
    for name in kimi_delta::CONVS {
        add_conv(tensors, &module(name), [config.width(), config.kernel], false);
    }
    tensors.0.push((module(kimi_delta::A_LOG), config.a_log_shape()));
    tensors.0.push((module(kimi_delta::DT_BIAS), vec![config.width()]));
    tensors.weight(&module(kimi_delta::NORM), &[config.head_dim]);
    tensors.part(&out, config.width(), false);
}

fn add_griffin(
    tensors: &mut Tensors,
    config: &GriffinConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let GriffinConfig { num_heads, width, kernel, .. } = *config;
    let dim = config.head_dim();
    for part in griffin::inputs(config, &module) {
        tensors.part(&part, hidden, true);
    }
    add_conv(tensors, &module(griffin::CONV), [width, kernel], true);
    tensors.0.push((module(griffin::RATES), vec![width]));
    for (weight, bias) in griffin::GATES.iter().zip(griffin::GATE_BIASES) {
        tensors.0.push((module(weight), vec![num_heads, dim, dim]));
        tensors.0.push((module(bias), vec![num_heads, dim]));
    }
    tensors.part(&Part::new(module(griffin::OUT), hidden), width, true);
}
