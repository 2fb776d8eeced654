//! The tensors that form one quantized matrix.

use std::borrow::Cow;

use playhouse_kernels::{Codes, Offsets, QuantizedMatrix};

use crate::weights::checkpoint::{Checkpoint, RawTensor};
use crate::weights::matrix::MatrixElements;
use crate::weights::tensor::elements;
use crate::weights::{StoredDtype, StoredMatrix, StoredTensor, WeightsError};

/// Takes the tensors of a module from a checkpoint, checks them, and counts them.
pub(super) struct Parts<'a, 'm> {
    checkpoint: &'a Checkpoint,
    module: &'m str,
    /// `[out, in]`
    pub(super) shape: [usize; 2],
    /// The matrix, and the number of matrices that the module has, if it has several.
    slice: Option<(usize, usize)>,
    tensor_count: usize,
    size_bytes: u64,
}

/// Returns the number of a byte of E8M0: a power of two, or NaN for the last byte.
pub(in crate::weights) fn e8m0(exponent: u8) -> f32 {
    match exponent {
        0xFF => f32::NAN,
        _ => (f64::from(exponent) - 127.0).exp2() as f32,
    }
}

impl<'a, 'm> Parts<'a, 'm> {
    pub(super) fn new(checkpoint: &'a Checkpoint, module: &'m str, shape: [usize; 2]) -> Self {
        Self { checkpoint, module, shape, slice: None, tensor_count: 0, size_bytes: 0 }
    }

    /// Returns the parts of matrix `index` of a module of `count` matrices.
    pub(super) fn of(self, index: usize, count: usize) -> Self {
        Self { slice: Some((index, count)), ..self }
    }

    /// Returns the number of matrices that the module has, if it has several.
    pub(super) fn count(&self) -> Option<usize> {
        self.slice.map(|(_, count)| count)
    }

    fn name(&self, part: &str) -> String {
        format!("{}.{part}", self.module)
    }

    pub(super) fn has(&self, part: &str) -> bool {
        self.checkpoint.has(&self.name(part))
    }

    /// Returns whether `part` exists and has the type `dtype`.
    pub(super) fn is_of(&self, part: &str, dtype: &str) -> bool {
        self.checkpoint.stored_dtype_name(&self.name(part)) == Some(dtype)
    }

    /// Returns the shape of `part` in the file, if it exists.
    pub(super) fn stored_shape(&self, part: &str) -> Option<&'a [usize]> {
        self.checkpoint.stored_shape(&self.name(part))
    }

    /// Takes 32-bit words of packed integers.
    pub(super) fn words(
        &mut self,
        part: &str,
        shape: &[usize],
    ) -> Result<Cow<'a, [u32]>, WeightsError> {
        let raw = self.take(part, shape)?;
        match raw.dtype {
            "I32" | "U32" => Ok(elements(raw.bytes, u32::from_le_bytes)),
            _ => Err(raw.refused("I32")),
        }
    }

    /// Takes one-byte integers.
    pub(super) fn bytes(&mut self, part: &str, shape: &[usize]) -> Result<Vec<i8>, WeightsError> {
        let raw = self.take(part, shape)?;
        match raw.dtype {
            "I8" => Ok(raw.bytes.iter().map(|byte| byte.cast_signed()).collect()),
            _ => Err(raw.refused("I8")),
        }
    }

    /// Takes bytes that hold packed numbers, or a text.
    pub(super) fn packed(
        &mut self,
        part: &str,
        shape: &[usize],
    ) -> Result<RawTensor<'a>, WeightsError> {
        self.of_type(part, shape, "U8")
    }

    /// Takes the elements of a part of the type `dtype`.
    pub(super) fn of_type(
        &mut self,
        part: &str,
        shape: &[usize],
        dtype: &'static str,
    ) -> Result<RawTensor<'a>, WeightsError> {
        let raw = self.take(part, shape)?;
        match raw.dtype == dtype {
            true => Ok(raw),
            false => Err(raw.refused(dtype)),
        }
    }

    /// Takes scales that are floats of any width.
    ///
    /// # Errors
    /// A scale that is not finite, because each of its elements would be none, too.
    pub(super) fn floats(&mut self, part: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        self.take(part, shape)?;
        let tensor = self.checkpoint.tensor(&self.name(part), shape)?;
        let scales = tensor.values().view().to_f32();
        self.require_finite(part, &scales)?;
        Ok(scales)
    }

    /// Takes scales that are floats, or exponents of two, which are stored plus 127. If the tensor
    /// `is_sliced`, it has those of each matrix of the module, one after the other.
    pub(super) fn scales(
        &mut self,
        part: &str,
        shape: &[usize],
        is_sliced: bool,
    ) -> Result<Vec<f32>, WeightsError> {
        let scales = match self.is_of(part, "F8_E8M0") || self.is_of(part, "U8") {
            false => self.floats(part, shape)?,
            true => {
                let bytes = self.take(part, shape)?.bytes;
                let scales: Vec<f32> = bytes.iter().map(|exponent| e8m0(*exponent)).collect();
                self.require_finite(part, &scales)?;
                scales
            }
        };
        let Some((index, count)) = self.slice.filter(|_| is_sliced) else { return Ok(scales) };
        let size = scales.len() / count.max(1);
        Ok(scales[index * size..][..size].to_vec())
    }

    pub(super) fn require_finite(&self, part: &str, scales: &[f32]) -> Result<(), WeightsError> {
        match scales.iter().enumerate().find(|(_, scale)| !scale.is_finite()) {
            None => Ok(()),
            Some((at, scale)) => {
                Err(self.invalid(part, format!("scale {at} is {scale}; expected a finite number")))
            }
        }
    }

    /// Takes the elements of the matrix as they are stored.
    pub(super) fn raw(&mut self, part: &str) -> Result<RawTensor<'a>, WeightsError> {
        let count = self.count();
        let shape: Vec<usize> = count.into_iter().chain(self.shape).collect();
        let raw = self.checkpoint.raw(&self.name(part), &shape)?;
        let (index, count) = self.slice.unwrap_or((0, 1));
        let size = raw.bytes.len() / count.max(1);
        let bytes = &raw.bytes[index * size..][..size];
        self.tensor_count += 1;
        self.size_bytes += size as u64;
        Ok(RawTensor { bytes, ..raw })
    }

    fn take(&mut self, part: &str, shape: &[usize]) -> Result<RawTensor<'a>, WeightsError> {
        let raw = self.checkpoint.raw(&self.name(part), shape)?;
        self.tensor_count += 1;
        self.size_bytes += raw.bytes.len() as u64;
        Ok(raw)
    }

    /// Returns the error that `part` is invalid.
    pub(super) fn invalid(&self, part: &str, reason: impl Into<String>) -> WeightsError {
        let tensor = self.name(part);
        let path = self.checkpoint.path_of(&tensor).to_owned();
        WeightsError::Quantized { path, tensor, reason: reason.into() }
    }

    /// Returns the number of groups of `group_size` inputs in a row. `None` means one group for
    /// all.
    pub(super) fn groups(
        &self,
        part: &str,
        group_size: Option<usize>,
    ) -> Result<(usize, usize), WeightsError> {
        let [_, inputs] = self.shape;
        let size = group_size.unwrap_or(inputs);
        if size == 0 || !inputs.is_multiple_of(size) {
            let reason = format!("{inputs} inputs are no whole number of groups of {size}");
            return Err(self.invalid(part, reason));
        }
        Ok((inputs / size, size))
    }

    /// Returns the matrix of the f32 in `bytes`, little endian, that belongs to the tensor `of`.
    pub(super) fn finish_floats(self, of: &RawTensor<'a>, bytes: Vec<u8>) -> StoredMatrix<'a> {
        let tensor = StoredTensor {
            path: of.path,
            shape: Cow::Owned(self.shape.to_vec()),
            dtype: StoredDtype::F32,
            bytes: Cow::Owned(bytes),
        };
        StoredMatrix {
            elements: MatrixElements::Dense(tensor),
            tensor_count: self.tensor_count,
            size_bytes: self.size_bytes,
        }
    }

    /// Returns the matrix, if its parts form one.
    pub(super) fn finish(
        self,
        group_size: usize,
        codes: Codes,
        scales: Vec<f32>,
        offsets: Offsets,
        input_order: Option<Vec<u32>>,
    ) -> Result<StoredMatrix<'a>, WeightsError> {
        let matrix =
            QuantizedMatrix::new(self.shape, group_size, codes, scales, offsets, input_order);
        let matrix = matrix.map_err(|source| self.checkpoint.no_matrix(self.module, source))?;
        Ok(StoredMatrix {
            elements: MatrixElements::Quantized(matrix),
            tensor_count: self.tensor_count,
            size_bytes: self.size_bytes,
        })
    }
}
