//! A weight matrix of a checkpoint: plain numbers, or few-bit integers with scales.

use half::{bf16, f16};
use playhouse_kernels::{QuantizedMatrix, WeightDtype};
use rayon::prelude::*;

use super::{StoredTensor, TensorValues};

/// The weight of a linear layer or an embedding, `[out, in]`.
#[derive(Debug)]
pub struct StoredMatrix<'a> {
    /// Its elements.
    pub elements: MatrixElements<'a>,
    /// Tensors of the checkpoint that form it.
    pub tensor_count: usize,
    /// Their size in the file.
    pub size_bytes: u64,
}

/// How the elements of a matrix are stored.
#[derive(Debug)]
pub enum MatrixElements<'a> {
    /// As floats.
    Dense(StoredTensor<'a>),
    /// As integers with scales.
    Quantized(QuantizedMatrix),
}

impl<'a> StoredMatrix<'a> {
    pub(super) fn dense(tensor: StoredTensor<'a>) -> Self {
        let size_bytes = tensor.size_bytes() as u64;
        Self { elements: MatrixElements::Dense(tensor), tensor_count: 1, size_bytes }
    }

    /// Returns matrix `index` of `tensor`, `[count, out, in]`.
    ///
    /// # Panics
    /// If there is no such matrix.
    #[must_use]
    pub fn slice(tensor: StoredTensor<'a>, index: usize, shape: [usize; 2]) -> Self {
        Self::dense(tensor.slice(index, shape))
    }

    /// Returns the matrix whose row `i` is row `rows[i]` of this one.
    ///
    /// # Panics
    /// If a row is outside the matrix.
    #[must_use]
    pub fn with_rows(self, rows: &[u32]) -> Self {
        let elements = match self.elements {
            MatrixElements::Dense(tensor) => MatrixElements::Dense(tensor.with_rows(rows)),
            MatrixElements::Quantized(matrix) => MatrixElements::Quantized(matrix.with_rows(rows)),
        };
        Self { elements, ..self }
    }

    /// Returns the matrix as a part of tensors that are counted with another part.
    #[must_use]
    pub fn uncounted(self) -> Self {
        Self { tensor_count: 0, size_bytes: 0, ..self }
    }

    /// Returns the matrix with rows and columns exchanged, unless it is quantized.
    #[must_use]
    pub fn transposed(self) -> Option<Self> {
        match self.elements {
            MatrixElements::Dense(tensor) => {
                Some(Self { elements: MatrixElements::Dense(tensor.transposed()), ..self })
            }
            MatrixElements::Quantized(_) => None,
        }
    }

    /// Returns all elements as floats. A quantized matrix is converted to `dtype`.
    #[must_use]
    pub fn values(&self, dtype: WeightDtype) -> TensorValues<'_> {
        let matrix = match &self.elements {
            MatrixElements::Dense(tensor) => return tensor.values(),
            MatrixElements::Quantized(matrix) => matrix,
        };
        match dtype {
            WeightDtype::F32 => TensorValues::F32(rounded(matrix, |exact| exact).into()),
            WeightDtype::F16 => TensorValues::F16(rounded(matrix, f16::from_f32).into()),
            WeightDtype::Bf16 => TensorValues::Bf16(rounded(matrix, bf16::from_f32).into()),
        }
    }
}

/// Returns the elements, each rounded.
fn rounded<T: Copy + Default + Send>(
    matrix: &QuantizedMatrix,
    round: impl Fn(f32) -> T + Sync,
) -> Vec<T> {
    let (rows, columns) = (matrix.out_features(), matrix.in_features());
    let mut values = vec![T::default(); rows * columns];
    let rows = values.par_chunks_mut(columns).enumerate();
    rows.for_each(|(o, row)| {
        let exact = matrix.row_f32(o).into_iter();
        row.iter_mut().zip(exact).for_each(|(x, exact)| *x = round(exact));
    });
    values
}
