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
use crate::model::config::{AttentionConfig, ModelConfig, RopeParameters};
use crate::model::weight_loader::refused;

const WHAT: &str = "cosines and sines of max_model_len positions";

/// The tables of a model's layers. Layers with equal parameters share a table.
pub(in crate::model) struct RotaryTables<'a> {
    config: &'a ModelConfig,
    device: &'a Device,
    /// The finished tables with their parameters and widths of a head.
    built: Vec<(RopeParameters, usize, Arc<RotaryTable>)>,
}

impl<'a> RotaryTables<'a> {
    pub(in crate::model) fn new(config: &'a ModelConfig, device: &'a Device) -> Self {
        Self { config, device, built: Vec::new() }
    }

    /// Returns the table of an attention, which it builds at the first call.
    pub(in crate::model) fn of(
        &mut self,
        attention: &AttentionConfig,
    ) -> Result<Arc<RotaryTable>, ModelError> {
        let AttentionConfig { rope, head_dim, .. } = attention;
        let known = self.built.iter().find(|(known, dim, _)| known == rope && dim == head_dim);
        if let Some((_, _, table)) = known {
            return Ok(table.clone());
        }
        let table = build(rope, *head_dim, self.config, self.device);
        let table = Arc::new(table.map_err(refused("rotary embedding"))?);
        self.built.push((rope.clone(), *head_dim, table.clone()));
        Ok(table)
    }
}

/// Returns the cosines and sines of `position * inverse frequency`, each
/// `[max_model_len, head_dim / 2]`.
///
/// As in HF, the angle is rounded to f32 before its cosine is taken. The cosine is computed in f64,
/// so that every platform rounds it alike.
///
/// # Errors
/// The errors of [`RotaryTable::new`]. [`KernelError::OutOfMemory`] if the memory is too small: a
/// `config.json` can ask for huge tables even if the weights are few.
fn build(
    parameters: &RopeParameters,
    head_dim: usize,
    config: &ModelConfig,
    device: &Device,
) -> Result<RotaryTable, KernelError> {
    let InverseFrequencies { inv_freq, attention_factor } = inverse_frequencies(
        parameters,
        head_dim,
        config.max_position_embeddings,
        config.max_model_len,
    );
    let len = config.max_model_len.saturating_mul(inv_freq.len());
    // The system grants more memory than it has, and kills the process that uses it. So the
    // available memory is checked before.
    let bytes = len.saturating_mul(2 * size_of::<f32>());
    if available_memory_bytes().is_some_and(|available| bytes as u64 > available) {
        return Err(KernelError::OutOfMemory { what: WHAT, bytes });
    }
    let table = |function: fn(f64) -> f64| {
        let mut table = try_zeroed(len, WHAT)?;
        // Rows are computed by several threads, because a long context has millions of angles.
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
    RotaryTable::new(cos, sin, head_dim, device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Mixer;

    /// Returns the demo model's config with a context of `max_model_len`, and the attention of its
    /// first layer with heads of `head_dim`.
    fn config(max_model_len: usize, head_dim: usize) -> (ModelConfig, AttentionConfig) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
        let config = ModelConfig::from_dir(folder.as_ref(), None).unwrap();
        let Mixer::Attention(attention) = &config.layers[0].mixer;
        let attention = AttentionConfig { head_dim, ..attention.clone() };
        (ModelConfig { max_model_len, ..config }, attention)
    }

    #[test]
    fn there_is_a_row_for_each_position() {
        let (config, attention) = config(37, 8);
        let table = build(&attention.rope, 8, &config, &Device::flex()).unwrap();
        assert_eq!((table.max_position(), table.rotary_dim()), (37, 8));
    }

    #[test]
    fn tables_beyond_all_memory_are_refused_and_not_allocated() {
        // Each number is accepted, but the tables would have 2^50 bytes.
        let (config, attention) = config(1 << 24, 1 << 24);
        let device = Device::flex();
        let error = RotaryTables::new(&config, &device).of(&attention).err().unwrap();
        let ModelError::Device { part, source } = error else { panic!("{error}") };
        assert_eq!(part, "rotary embedding");
        assert!(matches!(source, KernelError::OutOfMemory { bytes, .. } if bytes >= 1 << 49));
    }

    #[test]
    fn equal_attentions_share_a_table_and_others_do_not() {
        let (config, attention) = config(37, 8);
        let device = Device::flex();
        let mut tables = RotaryTables::new(&config, &device);
        let first = tables.of(&attention).unwrap();
        assert!(Arc::ptr_eq(&first, &tables.of(&attention.clone()).unwrap()));
        let wider = AttentionConfig { head_dim: 16, ..attention };
        assert_eq!(tables.of(&wider).unwrap().rotary_dim(), 16);
    }
}
