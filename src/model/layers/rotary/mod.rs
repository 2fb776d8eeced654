//! Rotary position embeddings (<https://arxiv.org/abs/2104.09864>; HF `LlamaRotaryEmbedding`):
//! tables of cosines and sines for every position a model may serve.

mod frequencies;

use std::sync::Arc;

use burn::tensor::Device;
use playhouse_kernels::RotaryTable;
use rayon::prelude::*;

pub use frequencies::{InverseFrequencies, inverse_frequencies};

use crate::model::ModelError;
use crate::model::config::{ModelConfig, RopeParameters};
use crate::model::load::refused;

/// The tables of a model's layers; layers with equal parameters share one.
pub(in crate::model) struct RotaryTables<'a> {
    config: &'a ModelConfig,
    device: &'a Device,
    built: Vec<(&'a RopeParameters, Arc<RotaryTable>)>,
}

impl<'a> RotaryTables<'a> {
    pub(in crate::model) fn new(config: &'a ModelConfig, device: &'a Device) -> Self {
        Self { config, device, built: Vec::new() }
    }

    /// The table of layer `index`.
    pub(in crate::model) fn of_layer(
        &mut self,
        index: usize,
    ) -> Result<Arc<RotaryTable>, ModelError> {
        let parameters = &self.config.layers[index].rope;
        if let Some((_, table)) = self.built.iter().find(|(known, _)| *known == parameters) {
            return Ok(table.clone());
        }
        let table = Arc::new(build(parameters, self.config, self.device)?);
        self.built.push((parameters, table.clone()));
        Ok(table)
    }
}

/// Cosines and sines of `position * inverse frequency`, each `[max_model_len, head_dim / 2]`.
///
/// As in HF, the angle is rounded to f32 before its cosine is taken. The cosine is taken in f64,
/// so that every platform rounds it alike.
fn build(
    parameters: &RopeParameters,
    config: &ModelConfig,
    device: &Device,
) -> Result<RotaryTable, ModelError> {
    let InverseFrequencies { inv_freq, attention_factor } = inverse_frequencies(
        parameters,
        config.head_dim,
        config.max_position_embeddings,
        config.max_model_len,
    );
    // Rows over threads: a long context has millions of angles.
    let table = |function: fn(f64) -> f64| {
        let row = |position: usize| {
            let angle = move |frequency: &f32| f64::from(position as f32 * frequency);
            let value = move |angle| function(angle) as f32 * attention_factor;
            inv_freq.iter().map(angle).map(value)
        };
        (0..config.max_model_len).into_par_iter().flat_map_iter(row).collect::<Vec<f32>>()
    };
    let (cos, sin) = (table(f64::cos), table(f64::sin));
    RotaryTable::new(cos, sin, config.head_dim, device).map_err(refused("rotary embedding"))
}
