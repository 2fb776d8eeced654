//! The rows of several images as one ragged batch: the sequences of attention, and tables of rotary
//! embeddings by rows and columns.

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{AttentionMetadata, KernelError, RotaryTable};

use crate::model::layers::rotary::default_frequencies;

/// Returns a batch of sequences of these lengths, one after the other. Sequences without rows are
/// left out.
pub(in crate::model) fn sequences(lens: impl IntoIterator<Item = usize>) -> AttentionMetadata {
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..AttentionMetadata::default() };
    for len in lens.into_iter().filter(|len| *len > 0) {
        meta.positions.extend(0..len as u32);
        meta.seq_lens.push(len as u32);
        meta.query_start_loc.push(meta.positions.len() as u32);
    }
    meta
}

/// Returns `values` as a tensor of rows of `width`.
pub(in crate::model) fn rows(values: Vec<f32>, width: usize, device: &Device) -> Tensor<2> {
    let count = values.len() / width;
    Tensor::from_data(TensorData::new(values, [count, width]), device)
}

/// A rotary embedding by two axes, rows and columns: half of a head's pairs turn with each (HF
/// `Qwen2_5_VLVisionRotaryEmbedding`, `PixtralRotaryEmbedding`).
#[derive(Debug)]
pub(super) struct AxialRotary {
    /// The frequencies of rows, then those of columns.
    frequencies: [Vec<f32>; 2],
    head_dim: usize,
    /// Whether the pairs of both axes alternate. If not, those of the first axis come first.
    alternates: bool,
}

impl AxialRotary {
    /// Returns an embedding whose axes have the same frequencies, those of half a head.
    pub(super) fn alike(theta: f64, head_dim: usize) -> Self {
        let frequencies = default_frequencies(theta, head_dim / 2);
        Self { frequencies: [frequencies.clone(), frequencies], head_dim, alternates: false }
    }

    /// Returns the same embedding with pairs of both axes that alternate.
    pub(super) fn alternating(theta: f64, head_dim: usize) -> Self {
        Self { alternates: true, ..Self::alike(theta, head_dim) }
    }

    /// Returns an embedding whose axes take turns in the frequencies of a whole head.
    pub(super) fn in_turns(theta: f64, head_dim: usize) -> Self {
        let all = default_frequencies(theta, head_dim);
        let of = |axis: usize| all.iter().skip(axis).step_by(2).copied().collect();
        Self { frequencies: [of(0), of(1)], head_dim, alternates: false }
    }

    /// Returns a table with a line for each of these rows and columns.
    ///
    /// # Errors
    /// As [`RotaryTable::new`].
    pub(super) fn table(
        &self,
        places: &[[u32; 2]],
        device: &Device,
    ) -> Result<RotaryTable, KernelError> {
        let table = |function: fn(f64) -> f64| {
            let line = |place: &[u32; 2]| {
                let of_axis = |axis: usize| {
                    let frequencies = self.frequencies[axis].iter();
                    frequencies.map(move |frequency| place[axis] as f32 * frequency)
                };
                let angles: Vec<f32> = match self.alternates {
                    true => of_axis(0).zip(of_axis(1)).flat_map(<[f32; 2]>::from).collect(),
                    false => of_axis(0).chain(of_axis(1)).collect(),
                };
                let numbers = angles.into_iter().map(|angle| function(f64::from(angle)) as f32);
                numbers.collect::<Vec<f32>>()
            };
            places.iter().flat_map(line).collect()
        };
        RotaryTable::new(table(f64::cos), table(f64::sin), self.head_dim, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_begin_at_position_0() {
        let meta = sequences([2, 0, 3]);
        assert_eq!(meta.query_start_loc, [0, 2, 5]);
        assert_eq!((meta.seq_lens, meta.positions), (vec![2, 3], vec![0, 1, 0, 1, 2]));
    }

    #[test]
    fn axes_have_the_same_frequencies_or_take_turns() {
        let alike = AxialRotary::alike(100.0, 8).frequencies;
        assert_eq!(alike[0], alike[1]);
        let in_turns = AxialRotary::in_turns(100.0, 8).frequencies;
        assert_eq!([in_turns[0][0], in_turns[0][1]], [alike[0][0], alike[0][1]]);
        assert!(in_turns[1][0] < in_turns[0][0] && in_turns[1][0] > in_turns[0][1]);
    }
}
