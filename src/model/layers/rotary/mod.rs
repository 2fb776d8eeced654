//! Rotary position embeddings (<https://arxiv.org/abs/2104.09864>; HF `LlamaRotaryEmbedding`):
//! tables of cosines and sines for every position a model may serve.

mod frequencies;

use std::sync::Arc;

use burn::tensor::Device;
use playhouse_kernels::{KernelError, RotaryTable, try_zeroed};
use rayon::prelude::*;

pub use frequencies::{InverseFrequencies, inverse_frequencies};

use crate::config::available_memory_bytes;
use crate::model::ModelError;
use crate::model::config::{ModelConfig, RopeParameters};
use crate::model::load::refused;

const WHAT: &str = "cosines and sines of max_model_len positions";

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
        let table = build(parameters, self.config, self.device);
        let table = Arc::new(table.map_err(refused("rotary embedding"))?);
        self.built.push((parameters, table.clone()));
        Ok(table)
    }
}

/// Cosines and sines of `position * inverse frequency`, each `[max_model_len, head_dim / 2]`.
///
/// As in HF, the angle is rounded to f32 before its cosine is taken. The cosine is taken in f64,
/// so that every platform rounds it alike.
///
/// # Errors
/// As [`RotaryTable::new`], and where there is no memory for them: `config.json` alone says how large
/// they are, however few the weights.
fn build(
    parameters: &RopeParameters,
    config: &ModelConfig,
    device: &Device,
) -> Result<RotaryTable, KernelError> {
    let InverseFrequencies { inv_freq, attention_factor } = inverse_frequencies(
        parameters,
        config.head_dim,
        config.max_position_embeddings,
        config.max_model_len,
    );
    let len = config.max_model_len.saturating_mul(inv_freq.len());
    // The system grants more than it has, and kills who uses it: it is asked what there is.
    let bytes = len.saturating_mul(2 * size_of::<f32>());
    if available_memory_bytes().is_some_and(|available| bytes as u64 > available) {
        return Err(KernelError::OutOfMemory { what: WHAT, bytes });
    }
    let table = |function: fn(f64) -> f64| {
        let mut table = try_zeroed(len, WHAT)?;
        // Rows over threads: a long context has millions of angles.
        let rows = table.par_chunks_mut(inv_freq.len().max(1)).enumerate();
        rows.for_each(|(position, row)| {
            for (value, frequency) in row.iter_mut().zip(&inv_freq) {
                let angle = f64::from(position as f32 * frequency);
                *value = function(angle) as f32 * attention_factor;
            }
        });
        Ok::<_, KernelError>(table)
    };
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    RotaryTable::new(cos, sin, config.head_dim, device)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The demo model's config, with contexts of `max_model_len` and heads of `head_dim`.
    fn config(max_model_len: usize, head_dim: usize) -> ModelConfig {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
        let config = ModelConfig::from_dir(folder.as_ref(), None).unwrap();
        ModelConfig { max_model_len, head_dim, ..config }
    }

    #[test]
    fn there_is_a_row_for_each_position() {
        let config = config(37, 8);
        let table = build(&config.layers[0].rope, &config, &Device::flex()).unwrap();
        assert_eq!((table.max_position(), table.rotary_dim()), (37, 8));
    }

    #[test]
    fn tables_beyond_all_memory_are_refused_and_not_allocated() {
        // 2^50 bytes, from a config whose numbers are all accepted.
        let config = config(1 << 24, 1 << 24);
        let device = Device::flex();
        let error = RotaryTables::new(&config, &device).of_layer(0).err().unwrap();
        let ModelError::Device { part, source } = error else { panic!("{error}") };
        assert_eq!(part, "rotary embedding");
        assert!(matches!(source, KernelError::OutOfMemory { bytes, .. } if bytes >= 1 << 49));
    }
}
