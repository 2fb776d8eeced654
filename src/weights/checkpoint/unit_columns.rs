//! A matrix whose columns are divided by their norms as it is read: `norm_head` of Ling.

use std::borrow::Cow;

use super::Checkpoint;
use crate::weights::{StoredDtype, StoredTensor, WeightsError};

/// The number that is added to each norm.
const EPS: f64 = 1e-7;
const WEIGHT: &str = ".weight";

impl Checkpoint {
    /// Returns the same checkpoint, in which the columns of the weight of `module` have norms of 1.
    ///
    /// # Errors
    /// [`WeightsError::Quantized`] if that weight is quantized.
    pub fn with_unit_columns(mut self, module: Option<&'static str>) -> Result<Self, WeightsError> {
        self.unit_columns = module;
        match module.filter(|module| self.is_in_parts(module)) {
            None => Ok(self),
            Some(module) => Err(WeightsError::Quantized {
                path: self.root,
                tensor: format!("{module}{WEIGHT}"),
                reason: "its columns are divided by their norms; expected floats".to_owned(),
            }),
        }
    }

    /// Returns the tensor `name`, in float32 with such columns if it is that weight.
    pub(super) fn of_unit_columns<'t>(
        &self,
        name: &str,
        tensor: StoredTensor<'t>,
    ) -> StoredTensor<'t> {
        let module = name.strip_suffix(WEIGHT);
        let &[_, columns] = tensor.shape() else { return tensor };
        if module.is_none() || module != self.unit_columns || columns == 0 {
            return tensor;
        }
        let mut values = tensor.values().view().to_f32();
        let mut squares = vec![0.0_f64; columns];
        for row in values.chunks_exact(columns) {
            for (sum, value) in squares.iter_mut().zip(row) {
                *sum += f64::from(*value).powi(2);
            }
        }
        let factors: Vec<f32> =
            squares.iter().map(|sum| (sum.sqrt() + EPS).recip() as f32).collect();
        for row in values.chunks_exact_mut(columns) {
            row.iter_mut().zip(&factors).for_each(|(value, factor)| *value *= factor);
        }
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.release(&tensor);
        StoredTensor { dtype: StoredDtype::F32, bytes: Cow::Owned(bytes), ..tensor }
    }
}
