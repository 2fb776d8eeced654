//! Rotary embeddings of positions with three axes, frames, rows and columns (M-RoPE,
//! <https://arxiv.org/abs/2409.12191>): each pair of a head turns with one of them.
//!
//! No kernel knows axes. Where a token differs on its axes, the step has a table of its own, with a
//! row for each token. Its numbers are those of the layers' table where the axes are equal.

use burn::tensor::Device;
use playhouse_kernels::RotaryTable;
use rayon::prelude::*;

use super::{InverseFrequencies, inverse_frequencies};
use crate::model::config::ModelConfig;

/// The frequencies and axes of a model's pairs.
#[derive(Debug)]
pub(in crate::model) struct AxesRotary {
    frequencies: InverseFrequencies,
    /// The axis of each pair.
    axes: Vec<u8>,
    rotary_dim: usize,
    /// The number of rows of the layers' tables.
    max_position: usize,
    device: Device,
}

/// The rows of a step's tokens in a rotary table.
#[derive(Debug)]
pub(in crate::model) struct StepRotary {
    /// The row of each token.
    pub(in crate::model) rows: Vec<u32>,
    /// The table; by default that of the layers.
    pub(in crate::model) table: Option<RotaryTable>,
}

impl AxesRotary {
    /// Returns the rotary embedding of a model's layers, if its positions have axes.
    pub(in crate::model) fn of(config: &ModelConfig, device: &Device) -> Option<Self> {
        let mut attentions = config.layers.iter().filter_map(|layer| layer.mixer.attention());
        let rope = attentions.find_map(|attention| attention.rope.as_ref())?;
        let (positions, max_position) = (config.max_position_embeddings, config.max_model_len);
        Some(Self {
            frequencies: inverse_frequencies(rope, positions, max_position),
            axes: rope.axes.clone()?,
            rotary_dim: rope.rotary_dim,
            max_position,
            device: device.clone(),
        })
    }

    /// Returns the rows of tokens with these positions. Without positions, there are none.
    pub(in crate::model) fn of_step(&self, positions: &[[u32; 3]]) -> Option<StepRotary> {
        if positions.is_empty() {
            return None;
        }
        let is_one = |[frame, row, column]: &[u32; 3]| {
            frame == row && row == column && (*frame as usize) < self.max_position
        };
        if positions.iter().all(is_one) {
            let rows = positions.iter().map(|[frame, ..]| *frame).collect();
            return Some(StepRotary { rows, table: None });
        }
        let rows = (0..positions.len() as u32).collect();
        Some(StepRotary { rows, table: Some(self.table(positions)) })
    }

    /// Returns a table with a row for each of `positions`.
    ///
    /// # Panics
    /// If the device rejects the table: it has accepted that of the layers.
    #[expect(clippy::expect_used, reason = "a step that lacks memory fails alone")]
    fn table(&self, positions: &[[u32; 3]]) -> RotaryTable {
        let [cos, sin] = [f64::cos, f64::sin].map(|function| self.values(positions, function));
        RotaryTable::new(cos, sin, self.rotary_dim, &self.device).expect("a rotary table")
    }

    /// Returns a function of all angles, `[positions.len(), rotary_dim / 2]`, rounded as in the
    /// layers' tables.
    fn values(&self, positions: &[[u32; 3]], function: fn(f64) -> f64) -> Vec<f32> {
        let InverseFrequencies { ref inv_freq, attention_factor } = self.frequencies;
        let row = |position: &[u32; 3]| {
            let pairs = inv_freq.iter().zip(&self.axes);
            let value = |(frequency, axis): (&f32, &u8)| {
                let angle = f64::from(position[usize::from(*axis)] as f32 * frequency);
                function(angle) as f32 * attention_factor
            };
            pairs.map(value).collect::<Vec<f32>>()
        };
        positions.par_iter().flat_map_iter(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Tensor, TensorData};
    use playhouse_kernels::rope;

    use super::super::build;
    use super::*;
    use crate::model::config::ModelConfig;

    const HEAD_DIM: usize = 8;
    const MAX: usize = 37;

    /// Returns an embedding of four pairs with these axes, and the layers' table.
    fn rotary(axes: [u8; 4]) -> (AxesRotary, RotaryTable) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
        let config = ModelConfig::from_dir(folder.as_ref(), None).unwrap();
        let attention = config.layers[0].mixer.attention().unwrap();
        let mut rope = attention.rope.clone().unwrap();
        (rope.rotary_dim, rope.frequency_dim) = (HEAD_DIM, HEAD_DIM);
        let config = ModelConfig { max_model_len: MAX, ..config };
        let device = Device::flex();
        let table = build(&rope, &config, &device).unwrap();
        let frequencies = inverse_frequencies(&rope, config.max_position_embeddings, MAX);
        let axes = axes.to_vec();
        let own = AxesRotary { frequencies, axes, rotary_dim: HEAD_DIM, max_position: MAX, device };
        (own, table)
    }

    /// Returns one head, turned by row `row` of `table`.
    fn turned(row: u32, table: &RotaryTable) -> Vec<f32> {
        let head: Vec<f32> = (0..HEAD_DIM).map(|at| at as f32 * 0.37 - 1.0).collect();
        let x = Tensor::from_data(TensorData::new(head, [1, HEAD_DIM]), &Device::flex());
        rope(x, &[row], HEAD_DIM, table).into_data().try_to_vec().unwrap()
    }

    #[test]
    fn text_has_the_rows_of_the_layers_table() {
        let (rotary, _) = rotary([0, 1, 2, 0]);
        assert!(rotary.of_step(&[]).is_none());
        let step = rotary.of_step(&[[3; 3], [9; 3]]).unwrap();
        assert!(step.table.is_none());
        assert_eq!(step.rows, [3, 9]);
        // The layers' table has no such row.
        assert!(rotary.of_step(&[[MAX as u32; 3]]).unwrap().table.is_some());
    }

    #[test]
    fn each_pair_turns_with_its_axis_to_the_bit() {
        let axes = [0, 1, 2, 0];
        let (rotary, layers) = rotary(axes);
        let step = rotary.of_step(&[[3; 3], [5, 7, 2]]).unwrap();
        let table = step.table.unwrap();
        assert_eq!(turned(step.rows[0], &table), turned(3, &layers));
        let found = turned(step.rows[1], &table);
        let by_axis = [5, 7, 2].map(|row| turned(row, &layers));
        for (pair, axis) in axes.into_iter().enumerate() {
            for at in [pair, pair + HEAD_DIM / 2] {
                assert_eq!(found[at].to_bits(), by_axis[usize::from(axis)][at].to_bits());
            }
        }
    }
}
