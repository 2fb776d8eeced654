//! One tensor of a checkpoint, still in its file.

use std::borrow::Cow;
use std::path::Path;

use bytemuck::PodCastError;
use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};
use playhouse_kernels::WeightView;

#[cfg(target_endian = "big")]
compile_error!("the data of checkpoints is little endian and is used in place");

/// The element types that the engine reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredDtype {
    /// 32-bit floats.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl StoredDtype {
    fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "F32" => Some(Self::F32),
            "F16" => Some(Self::F16),
            "BF16" => Some(Self::Bf16),
            _ => None,
        }
    }
}

/// A tensor of a checkpoint: its raw little-endian bytes in the mapped file, row-major.
#[derive(Debug, Clone)]
pub struct StoredTensor<'a> {
    pub(super) path: &'a Path,
    pub(super) shape: Cow<'a, [usize]>,
    pub(super) dtype: StoredDtype,
    /// A part of the file, unless its rows were reordered or its values generated.
    pub(super) bytes: Cow<'a, [u8]>,
}

impl<'a> StoredTensor<'a> {
    /// Returns the file that holds it.
    #[must_use]
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns its shape, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns its element type in the file.
    #[must_use]
    pub fn dtype(&self) -> StoredDtype {
        self.dtype
    }

    /// Returns its size in the file, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns matrix `index` of this tensor, `[count, out, in]`.
    ///
    /// # Panics
    /// If there is no such matrix.
    pub(super) fn slice(self, index: usize, shape: [usize; 2]) -> Self {
        let size = shape[0] * shape[1] * self.dtype.size_bytes();
        let range = index * size..(index + 1) * size;
        let bytes = match self.bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[range]),
            Cow::Owned(bytes) => Cow::Owned(bytes[range].to_vec()),
        };
        Self { bytes, shape: Cow::Owned(shape.to_vec()), ..self }
    }

    /// Returns the matrix `[out, in]` whose row `i` is row `rows[i]` of this one.
    ///
    /// # Panics
    /// If a row is outside the tensor.
    pub(super) fn with_rows(self, rows: &[u32]) -> Self {
        let row_bytes = self.bytes.len() / self.shape.first().copied().unwrap_or(1).max(1);
        let row = |row: &u32| &self.bytes[*row as usize * row_bytes..][..row_bytes];
        let bytes = rows.iter().flat_map(row).copied().collect();
        let mut shape = self.shape.into_owned();
        if let Some(count) = shape.first_mut() {
            *count = rows.len();
        }
        Self { bytes: Cow::Owned(bytes), shape: Cow::Owned(shape), ..self }
    }

    /// Returns the matrix `[out, in]` whose transpose this one is.
    pub(super) fn transposed(self) -> Self {
        let (rows, columns) = match *self.shape {
            [rows, columns] => (rows, columns),
            _ => return self,
        };
        let size = self.dtype.size_bytes();
        let mut bytes = vec![0; self.bytes.len()];
        for (i, element) in bytes.chunks_exact_mut(size).enumerate() {
            let (column, row) = (i / rows, i % rows);
            let at = (row * columns + column) * size;
            element.copy_from_slice(&self.bytes[at..at + size]);
        }
        Self { bytes: Cow::Owned(bytes), shape: Cow::Owned(vec![columns, rows]), ..self }
    }

    /// Returns its elements. They are borrowed if the file aligns them, and copied if not.
    #[must_use]
    pub fn values(&self) -> TensorValues<'_> {
        match self.dtype {
            StoredDtype::F32 => TensorValues::F32(elements(&self.bytes, f32::from_le_bytes)),
            StoredDtype::F16 => {
                let bits = elements(&self.bytes, u16::from_le_bytes);
                TensorValues::F16(halves(bits, |bits| bits.reinterpret_cast()))
            }
            StoredDtype::Bf16 => {
                let bits = elements(&self.bytes, u16::from_le_bytes);
                TensorValues::Bf16(halves(bits, |bits| bits.reinterpret_cast()))
            }
        }
    }
}

/// The elements of a tensor, in the type in which they are stored.
#[derive(Debug, Clone)]
pub enum TensorValues<'a> {
    /// 32-bit floats.
    F32(Cow<'a, [f32]>),
    /// IEEE half precision.
    F16(Cow<'a, [f16]>),
    /// bfloat16.
    Bf16(Cow<'a, [bf16]>),
}

impl TensorValues<'_> {
    /// Returns a view as the kernels take weights.
    #[must_use]
    pub fn view(&self) -> WeightView<'_> {
        match self {
            Self::F32(values) => WeightView::F32(values),
            Self::F16(values) => WeightView::F16(values),
            Self::Bf16(values) => WeightView::Bf16(values),
        }
    }
}

/// Returns `bytes`, whose length is a multiple of the element size, as elements.
pub(super) fn elements<const N: usize, T>(
    bytes: &[u8],
    from_le_bytes: fn([u8; N]) -> T,
) -> Cow<'_, [T]>
where
    T: bytemuck::AnyBitPattern,
{
    let in_place: Result<&[T], PodCastError> = bytemuck::try_cast_slice(bytes);
    match in_place {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => {
            let (chunks, _) = bytes.as_chunks::<N>();
            Cow::Owned(chunks.iter().map(|chunk| from_le_bytes(*chunk)).collect())
        }
    }
}

/// Returns sixteen-bit patterns as a half-precision type.
fn halves<T: Clone>(bits: Cow<'_, [u16]>, cast: fn(&[u16]) -> &[T]) -> Cow<'_, [T]> {
    match bits {
        Cow::Borrowed(bits) => Cow::Borrowed(cast(bits)),
        Cow::Owned(bits) => Cow::Owned(cast(&bits).to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(dtype: StoredDtype, bytes: &[u8]) -> Vec<f32> {
        let bytes = Cow::Borrowed(bytes);
        let shape = Cow::Borrowed(&[] as &[usize]);
        StoredTensor { path: Path::new("x"), shape, dtype, bytes }.values().view().to_f32()
    }

    #[test]
    fn reads_every_dtype_at_any_alignment() {
        let numbers = [1.5f32, -2.0, 0.25];
        let f32_bytes = numbers.map(f32::to_le_bytes).concat();
        let f16_bytes = numbers.map(|x| f16::from_f32(x).to_le_bytes()).concat();
        let bf16_bytes = numbers.map(|x| bf16::from_f32(x).to_le_bytes()).concat();
        for (dtype, bytes) in [
            (StoredDtype::F32, f32_bytes),
            (StoredDtype::F16, f16_bytes),
            (StoredDtype::Bf16, bf16_bytes),
        ] {
            let mut shifted = vec![0; 16];
            for shift in 0..8 {
                shifted.truncate(shift);
                shifted.extend_from_slice(&bytes);
                assert_eq!(values(dtype, &shifted[shift..]), numbers, "{dtype:?} at {shift}");
            }
        }
    }
}
