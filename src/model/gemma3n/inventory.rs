//! The tensors beside those of other decoders.

use super::{PROJECTIONS, UNEMBED_PROJECTIONS};
use crate::model::config::{AltUpConfig, ModelConfig};
use crate::model::layers::per_layer;

/// Returns the tensors of `altup` with their shapes.
pub(in crate::model) fn tensors(
    config: &ModelConfig,
    altup: &AltUpConfig,
) -> Vec<(String, Vec<usize>)> {
    let (hidden, names) = (config.hidden_size, &config.names);
    let (count, rank) = (altup.num_inputs, altup.laurel_rank);
    let mut tensors = per_layer::tensors(config, &altup.per_layer);
    let mut weight = |module: &str, shape: &[usize]| {
        tensors.push((format!("{module}.weight"), shape.to_vec()));
    };
    for module in [PROJECTIONS, UNEMBED_PROJECTIONS] {
        let module = names.stored(module);
        match altup.is_stacked {
            true => weight(&module, &[count - 1, hidden, hidden]),
            false => (0..count - 1)
                .for_each(|index| weight(&format!("{module}.{index}"), &[hidden, hidden])),
        }
    }
    for layer in 0..config.layers.len() {
        for (name, shape) in [
            ("altup.modality_router", vec![count, hidden]),
            ("altup.prediction_coefs", vec![count * count, count]),
            ("altup.correction_coefs", vec![count, count]),
            ("altup.router_norm", vec![hidden]),
            ("laurel.linear_left", vec![rank, hidden]),
            ("laurel.linear_right", vec![hidden, rank]),
            ("laurel.post_laurel_norm", vec![hidden]),
        ] {
            weight(&names.of_layer(layer, name), &shape);
        }
    }
    if altup.scales_output {
        tensors.extend(output_scales(config));
    }
    tensors
}

/// Returns the tensors that a checkpoint may have without use.
pub(in crate::model) fn optional(
    config: &ModelConfig,
    altup: &AltUpConfig,
) -> Vec<(String, Vec<usize>)> {
    if altup.scales_output { Vec::new() } else { output_scales(config).collect() }
}

fn output_scales(config: &ModelConfig) -> impl Iterator<Item = (String, Vec<usize>)> {
    let name = |layer| config.names.of_layer(layer, "altup.correct_output_scale");
    (0..config.layers.len()).map(move |layer| (name(layer), vec![config.hidden_size]))
}
