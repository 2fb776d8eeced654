//! A matrix whose columns or rows are divided by their norms as it is read: `norm_head` of Ling,
//! and the output layer of Baichuan 2.

use std::borrow::Cow;

use super::Checkpoint;
use crate::weights::{StoredDtype, StoredTensor, WeightsError};

const WEIGHT: &str = ".weight";

/// The vectors of a matrix that are divided by their norms as it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitVectors {
    /// Its columns, with norms that are 1e-7 larger.
    Columns,
    /// Its rows, with norms of at least 1e-12: `torch.nn.functional.normalize`.
    Rows,
}

impl UnitVectors {
    /// Divides the vectors of a matrix of `columns` columns, row-major, by their norms.
    fn divide(self, values: &mut [f32], columns: usize) {
        match self {
            Self::Columns => {
                let mut squares = vec![0.0_f64; columns];
                for row in values.chunks_exact(columns) {
                    for (sum, value) in squares.iter_mut().zip(row) {
                        *sum += f64::from(*value).powi(2);
                    }
                }
                let factors: Vec<f32> =
                    squares.iter().map(|sum| (sum.sqrt() + 1e-7).recip() as f32).collect();
                for row in values.chunks_exact_mut(columns) {
                    row.iter_mut().zip(&factors).for_each(|(value, factor)| *value *= factor);
                }
            }
            Self::Rows => {
                for row in values.chunks_exact_mut(columns) {
                    let sum: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
                    let factor = sum.sqrt().max(1e-12).recip() as f32;
                    row.iter_mut().for_each(|value| *value *= factor);
                }
            }
        }
    }
}

impl Checkpoint {
    /// Returns the same checkpoint, in which these vectors of the weight of a module have norms
    /// of 1.
    ///
    /// # Errors
    /// [`WeightsError::Quantized`] if that weight is quantized.
    pub fn with_unit_vectors(
        mut self,
        of: Option<(&'static str, UnitVectors)>,
    ) -> Result<Self, WeightsError> {
        self.unit_vectors = of;
        match of.filter(|(module, _)| self.is_in_parts(module)) {
            None => Ok(self),
            Some((module, vectors)) => {
                let vectors = match vectors {
                    UnitVectors::Columns => "columns",
                    UnitVectors::Rows => "rows",
                };
                Err(WeightsError::Quantized {
                    path: self.root,
                    tensor: format!("{module}{WEIGHT}"),
                    reason: format!("its {vectors} are divided by their norms; expected floats"),
                })
            }
        }
    }

    /// Returns the tensor `name`, in float32 with unit vectors if it is that weight.
    pub(super) fn of_unit_vectors<'t>(
        &self,
        name: &str,
        tensor: StoredTensor<'t>,
    ) -> StoredTensor<'t> {
        let module = name.strip_suffix(WEIGHT);
        let &[_, columns] = tensor.shape() else { return tensor };
        let Some((of, vectors)) = self.unit_vectors else { return tensor };
        if module != Some(of) || columns == 0 {
            return tensor;
        }
        let mut values = tensor.values().view().to_f32();
        vectors.divide(&mut values, columns);
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.release(&tensor);
        StoredTensor { dtype: StoredDtype::F32, bytes: Cow::Owned(bytes), ..tensor }
    }
}

#[cfg(test)]
mod tests {
    use super::UnitVectors;

    /// The matrix has the rows 3, 4 and 0, 0 in its first two columns, and zeros in its third.
    #[test]
    fn rows_and_columns_have_norms_of_one_and_zeros_stay() {
        let matrix = [3.0, 4.0, 0.0, 0.0, 0.0, 0.0];
        let divided = |vectors: UnitVectors| {
            let mut values = matrix;
            vectors.divide(&mut values, 3);
            values.map(|value| (value * 1e4).round() / 1e4)
        };
        assert_eq!(divided(UnitVectors::Rows), [0.6, 0.8, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(divided(UnitVectors::Columns), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
