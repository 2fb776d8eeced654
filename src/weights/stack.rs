//! Matrices of one layer, side by side. Quantized matrices of different formats are converted to
//! one.

use std::mem::discriminant;

use playhouse_kernels::{Codes, KernelError, Offsets, QuantizedMatrix};

use super::{MatrixElements, StoredMatrix};

/// Matrices that are to be stacked.
#[derive(Debug)]
pub enum Stack<'a> {
    /// All quantized, with codes of the same width in groups of the same size.
    Quantized(Vec<QuantizedMatrix>),
    /// Some dense, or with their columns in different orders: they are stacked as floats.
    Floats(Vec<StoredMatrix<'a>>),
}

impl<'a> Stack<'a> {
    /// Returns a stack of `matrices`. Quantized matrices of one format are unchanged. Others get
    /// codes of eight bits in the smallest groups, which is exact: llama.cpp mixes q and k in Q4_K
    /// with v in Q6_K.
    ///
    /// # Errors
    /// As [`QuantizedMatrix::new`], but never for matrices that it returned.
    pub fn new(matrices: Vec<StoredMatrix<'a>>) -> Result<Self, KernelError> {
        let mut orders = matrices.iter().map(|matrix| match &matrix.elements {
            MatrixElements::Quantized(matrix) => Some(matrix.input_order()),
            MatrixElements::Dense(_) => None,
        });
        let first = orders.next().flatten();
        if first.is_none() || orders.any(|order| order != first) {
            return Ok(Self::Floats(matrices));
        }
        let parts = matrices.into_iter().filter_map(|matrix| match matrix.elements {
            MatrixElements::Quantized(matrix) => Some(matrix),
            MatrixElements::Dense(_) => None,
        });
        uniform(parts.collect()).map(Self::Quantized)
    }
}

fn uniform(parts: Vec<QuantizedMatrix>) -> Result<Vec<QuantizedMatrix>, KernelError> {
    let format = |part: &QuantizedMatrix| (part.group_size(), discriminant(part.codes()));
    if parts.windows(2).all(|pair| format(&pair[0]) == format(&pair[1])) {
        return Ok(parts);
    }
    // Group sizes divide the number of inputs. If no size divides the others, their common divisor
    // does.
    let group_size = parts.iter().map(QuantizedMatrix::group_size).fold(0, common_divisor);
    parts.iter().map(|part| widened(part, group_size)).collect()
}

/// Twice the number of each code of [`Codes::E2M1`].
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Returns the same matrix with codes of eight bits in groups of `group_size`, a divisor of its own
/// group size.
fn widened(part: &QuantizedMatrix, group_size: usize) -> Result<QuantizedMatrix, KernelError> {
    let mut step = 1.0;
    let codes = match part.codes() {
        Codes::I8(codes) => codes.clone(),
        Codes::U4(codes) => {
            let halves = codes.iter().flat_map(|pair| [pair & 0x0F, pair >> 4]);
            halves.map(u8::cast_signed).collect()
        }
        Codes::E2M1(codes) => {
            step = 0.5;
            let halves = codes.iter().flat_map(|pair| [pair & 0x0F, pair >> 4]);
            halves.map(|code| E2M1_DOUBLED[usize::from(code)]).collect()
        }
    };
    let scales: Vec<f32> = part.scales().iter().map(|scale| scale * step).collect();
    let copies = part.group_size() / group_size;
    let offsets = match part.offsets() {
        Offsets::None => Offsets::None,
        Offsets::ZeroPoints(zero_points) => Offsets::ZeroPoints(repeated(zero_points, copies)),
        Offsets::Values(values) => Offsets::Values(repeated(values, copies)),
    };
    QuantizedMatrix::new(
        [part.out_features(), part.in_features()],
        group_size,
        Codes::I8(codes),
        repeated(&scales, copies),
        offsets,
        part.input_order().map(<[u32]>::to_vec),
    )
}

/// Returns each of `values` that many times.
fn repeated<T: Copy>(values: &[T], copies: usize) -> Vec<T> {
    values.iter().flat_map(|&x| std::iter::repeat_n(x, copies)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(group_size: usize, codes: Codes, order: Option<Vec<u32>>) -> QuantizedMatrix {
        let groups = 2 * 8 / group_size;
        let scales = (0..groups).map(|i| i as f32 + 0.5).collect();
        let offsets = match &codes {
            Codes::U4(_) => Offsets::ZeroPoints((0..groups).map(|i| i as i8 + 3).collect()),
            Codes::I8(_) => Offsets::Values((0..groups).map(|i| -(i as f32)).collect()),
            Codes::E2M1(_) => Offsets::None,
        };
        QuantizedMatrix::new([2, 8], group_size, codes, scales, offsets, order).unwrap()
    }

    #[test]
    fn mixed_formats_become_one_and_keep_their_values() {
        let narrow = matrix(8, Codes::U4((0..8).map(|i| i * 17).collect()), None);
        let wide = matrix(2, Codes::I8((-8..8).collect()), None);
        let stored = |matrix: &QuantizedMatrix| StoredMatrix {
            elements: MatrixElements::Quantized(matrix.clone()),
            tensor_count: 1,
            size_bytes: 0,
        };
        let stack = |parts: &[&QuantizedMatrix]| {
            Stack::new(parts.iter().map(|part| stored(part)).collect()).unwrap()
        };
        let Stack::Quantized(made) = stack(&[&narrow, &wide]) else { panic!("not quantized") };
        for (part, made) in [&narrow, &wide].into_iter().zip(&made) {
            assert_eq!((made.group_size(), matches!(made.codes(), Codes::I8(_))), (2, true));
            for row in 0..2 {
                assert_eq!(made.row_f32(row), part.row_f32(row));
            }
        }
        let floats = matrix(8, Codes::E2M1((0..8).map(|i| i * 36).collect()), None);
        let Stack::Quantized(made) = stack(&[&floats, &narrow]) else { panic!("not quantized") };
        assert_eq!(made[0].row_f32(1), floats.row_f32(1));
        let Stack::Quantized(made) = stack(&[&narrow, &narrow]) else { panic!("not quantized") };
        assert_eq!(made, [narrow.clone(), narrow]);
        let turned = matrix(2, Codes::I8((-8..8).collect()), Some((0..8).rev().collect()));
        assert!(matches!(stack(&[&wide, &turned]), Stack::Floats(parts) if parts.len() == 2));
    }
}
