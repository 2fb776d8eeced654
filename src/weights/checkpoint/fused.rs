//! Tensors that hold the matrices of several experts.

use super::{Checkpoint, Layout};
use crate::weights::{StoredMatrix, WeightsError};

impl Checkpoint {
    /// Returns matrix `index`, `[out, in]`, of the tensor `name` of `count` matrices, which is
    /// stored as `[count, in, out]`.
    ///
    /// # Errors
    /// As [`Checkpoint::matrix`].
    pub fn fused_matrix(
        &self,
        name: &str,
        index: usize,
        count: usize,
        [out, inputs]: [usize; 2],
    ) -> Result<StoredMatrix<'_>, WeightsError> {
        if let Layout::HuggingFace(Some(quantization)) = &self.layout
            && let Some(matrix) =
                quantization.read_fused(self, name, (index, count), [out, inputs])?
        {
            return Ok(matrix);
        }
        if let Layout::Dummy(_) = self.layout {
            return self.generated(name, index, [out, inputs]);
        }
        let stored = self.tensor(name, &[count, inputs, out])?.slice(index, [inputs, out]);
        let turned = stored.clone().transposed();
        self.release(&stored);
        Ok(StoredMatrix::dense(turned))
    }

    /// Returns whether several tensors hold the tensor `name` of experts.
    pub(super) fn is_fused_in_parts(&self, name: &str) -> bool {
        match &self.layout {
            Layout::HuggingFace(Some(quantization)) => quantization.is_fused(self, name),
            Layout::HuggingFace(None) | Layout::Gguf | Layout::Dummy(_) => false,
        }
    }

    /// Returns a generated matrix without the others of its tensor.
    pub(super) fn generated(
        &self,
        name: &str,
        index: usize,
        shape: [usize; 2],
    ) -> Result<StoredMatrix<'_>, WeightsError> {
        Ok(StoredMatrix::dense(self.tensor(&format!("{name}.{index}"), &shape)?))
    }
}
