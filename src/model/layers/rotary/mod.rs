//! Rotary position embeddings (<https://arxiv.org/abs/2104.09864>; HF `LlamaRotaryEmbedding`):
//! tables of cosines and sines for every position a model may serve.

mod axes;
mod frequencies;

use std::sync::Arc;

use burn::tensor::Device;
use playhouse_kernels::{KernelError, RotaryTable, try_zeroed};
use rayon::prelude::*;

pub(in crate::model) use axes::AxesRotary;
pub(in crate::model) use frequencies::default_frequencies;
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
    /// The finished tables with their parameters.
    built: Vec<(RopeParameters, Arc<RotaryTable>)>,
}

impl<'a> RotaryTables<'a> {
    pub(in crate::model) fn new(config: &'a ModelConfig, device: &'a Device) -> Self {
        Self { config, device, built: Vec::new() }
    }

    /// Returns the table of an attention, which it builds at the first call. Returns none for an
    /// attention without rotary embeddings.
    pub(in crate::model) fn of(
        &mut self,
        attention: &AttentionConfig,
    ) -> Result<Option<Arc<RotaryTable>>, ModelError> {
        attention.rope.as_ref().map(|rope| self.with(rope)).transpose()
    }

    /// Returns the table for these parameters, which it builds at the first call.
    pub(in crate::model) fn with(
        &mut self,
        rope: &RopeParameters,
    ) -> Result<Arc<RotaryTable>, ModelError> {
        if let Some((_, table)) = self.built.iter().find(|(known, _)| known == rope) {
            return Ok(table.clone());
        }
        let table = build(rope, self.config, self.device);
        let table = Arc::new(table.map_err(refused("rotary embedding"))?);
        self.built.push((rope.clone(), table.clone()));
        Ok(table)
    }
}

/// Returns the cosines and sines of `position * inverse frequency`, each
/// `[max_model_len, rotary_dim / 2]`. In a model with a short context, rows with the frequencies of
/// that context follow, one for each of its positions.
///
/// As in HF, the angle is rounded to f32 before its cosine is taken. The cosine is computed in f64,
/// so that every platform rounds it alike.
///
/// # Errors
/// The errors of [`RotaryTable::new`]. [`KernelError::OutOfMemory`] if the memory is too small: a
/// `config.json` can ask for huge tables even if the weights are few.
fn build(
    parameters: &RopeParameters,
    config: &ModelConfig,
    device: &Device,
) -> Result<RotaryTable, KernelError> {
    let of_context =
        |length: usize| inverse_frequencies(parameters, config.max_position_embeddings, length);
    let long = of_context(config.max_model_len);
    let (num_long, num_short) = (config.max_model_len, config.short_context().unwrap_or(0));
    let short = of_context(num_short.max(1));
    let pairs = long.inv_freq.len();
    let len = (num_long + num_short).saturating_mul(pairs);
    // The system grants more memory than it has, and kills the process that uses it. So the
    // available memory is checked before.
    let bytes = len.saturating_mul(2 * size_of::<f32>());
    if available_memory_bytes().is_some_and(|available| bytes as u64 > available) {
        return Err(KernelError::OutOfMemory { what: WHAT, bytes });
    }
    let table = |function: fn(f64) -> f64| {
        let mut table = try_zeroed(len, WHAT)?;
        // Rows are computed by several threads, because a long context has millions of angles.
        let rows = table.par_chunks_mut(pairs.max(1)).enumerate();
        rows.for_each(|(index, row)| {
            let (position, of_row) = match index.checked_sub(num_long) {
                None => (index, &long),
                Some(position) => (position, &short),
            };
            for (value, frequency) in row.iter_mut().zip(&of_row.inv_freq) {
                let angle = f64::from(position as f32 * frequency);
                *value = function(angle) as f32 * of_row.attention_factor;
            }
        });
        Ok::<_, KernelError>(table)
    };
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    RotaryTable::new(cos, sin, parameters.rotary_dim, device)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the demo model's config with a context of `max_model_len`, and the attention of its
    /// first layer with rotating parts of `rotary_dim`.
    fn config(max_model_len: usize, rotary_dim: usize) -> (ModelConfig, AttentionConfig) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
        let config = ModelConfig::from_dir(folder.as_ref(), None).unwrap();
        let attention = config.layers[0].mixer.attention().unwrap();
        let attention = turning(attention, rotary_dim);
        (ModelConfig { max_model_len, ..config }, attention)
    }

    fn turning(attention: &AttentionConfig, rotary_dim: usize) -> AttentionConfig {
        let frequency_dim = rotary_dim;
        let with = |rope| RopeParameters { rotary_dim, frequency_dim, ..rope };
        let rope = attention.rope.clone().map(with);
        AttentionConfig { rope, ..attention.clone() }
    }

    #[test]
    fn there_is_a_row_for_each_position() {
        let (config, attention) = config(37, 8);
        let table = build(&attention.rope.unwrap(), &config, &Device::flex()).unwrap();
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

    /// The exponents of three elements are 0 and 2/3, and the fourth element turns with the second.
    #[test]
    fn an_odd_number_of_elements_is_in_the_exponents() {
        let (config, attention) = config(37, 4);
        let rope = attention.rope.unwrap();
        let rope = RopeParameters { frequency_dim: 3, theta: 1_000.0, ..rope };
        let inverse = inverse_frequencies(&rope, 37, 37).inv_freq;
        assert_eq!(inverse.len(), 2);
        assert!(inverse[0] == 1.0 && (inverse[1] - 0.01).abs() < 1e-8, "{inverse:?}");
        assert_eq!(build(&rope, &config, &Device::flex()).unwrap().rotary_dim(), 4);
    }

    #[test]
    fn equal_attentions_share_a_table_and_others_do_not() {
        let (config, attention) = config(37, 8);
        let device = Device::flex();
        let mut tables = RotaryTables::new(&config, &device);
        let first = tables.of(&attention).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &tables.of(&attention.clone()).unwrap().unwrap()));
        let wider = turning(&attention, 16);
        assert_eq!(tables.of(&wider).unwrap().unwrap().rotary_dim(), 16);
        let none = AttentionConfig { rope: None, ..attention };
        assert!(tables.of(&none).unwrap().is_none());
    }
}
