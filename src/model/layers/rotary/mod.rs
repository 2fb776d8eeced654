//! Rotary position embeddings (<https://arxiv.org/abs/2104.09864>; HF `LlamaRotaryEmbedding`):
//! tables of cosines and sines for every position a model may serve.

mod frequencies;

use std::sync::Arc;

use burn::tensor::Device;
use playhouse_kernels::RotaryTable;

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
    let size = config.max_model_len * inv_freq.len();
    let (mut cos, mut sin) = (Vec::with_capacity(size), Vec::with_capacity(size));
    for position in 0..config.max_model_len {
        for frequency in &inv_freq {
            let angle = f64::from(position as f32 * frequency);
            cos.push(angle.cos() as f32 * attention_factor);
            sin.push(angle.sin() as f32 * attention_factor);
        }
    }
    RotaryTable::new(cos, sin, config.head_dim, device).map_err(refused("rotary embedding"))
}
