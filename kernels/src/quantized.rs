//! Weights of few bits, as checkpoints of every format describe them.

use crate::KernelError;

/// A row-major matrix `[out, in]` of small integers, scaled in groups of neighbouring inputs. A
/// number is `w[o][i] = scale · (code[o][i] - zero_point)` or `scale · code[o][i] + offset`. The
/// scale and the zero point or offset ([`Offsets`]) are those of output `o` and group
/// `i / group_size`.
///
/// GPTQ, AWQ, compressed-tensors and GGUF's block formats have this form in common. A reader brings
/// a tensor into it, and [`LinearWeight`](crate::LinearWeight) packs it.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantizedMatrix {
    codes: Codes,
    scales: Vec<f32>,
    offsets: Offsets,
    input_order: Option<Vec<u32>>,
    out_features: usize,
    in_features: usize,
    group_size: usize,
}

/// The integers of a [`QuantizedMatrix`], row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Codes {
    /// `0..=15`, two a byte, the input with the even index in the low half: `[out, in / 2]` bytes.
    U4(Vec<u8>),
    /// `-128..=127`: `[out, in]`.
    I8(Vec<i8>),
    /// Floats of four bits, packed as U4: the element format E2M1 of the OCP Microscaling formats.
    E2M1(Vec<u8>),
}

/// The number of each code of [`Codes::E2M1`].
pub(crate) const E2M1_VALUES: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The number that a code of 0 stands for, by group: `[out, in / group_size]`.
#[derive(Debug, Clone, PartialEq)]
pub enum Offsets {
    /// Zero.
    None,
    /// The negative of the scale times this integer, which is the code that stands for zero. It
    /// must be in the range of the codes.
    ZeroPoints(Vec<i8>),
    /// Numbers, one a group.
    Values(Vec<f32>),
}

impl Offsets {
    fn len(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::ZeroPoints(zero_points) => Some(zero_points.len()),
            Self::Values(values) => Some(values.len()),
        }
    }
}

impl QuantizedMatrix {
    /// Checks the parts of a matrix. `scales`, and `offsets` where a code of 0 does not stand for
    /// zero, are `[out, in / group_size]`. `input_order` is a permutation of `0..in`: the input of
    /// each column, where groups do not hold neighbours (GPTQ's `desc_act`).
    ///
    /// # Errors
    /// A length that does not fit, a zero point that is not a code, or an order that is not a
    /// permutation. Also a group size that is odd, 1 included, or does not divide `in_features`.
    pub fn new(
        [out_features, in_features]: [usize; 2],
        group_size: usize,
        codes: Codes,
        scales: Vec<f32>,
        offsets: Offsets,
        input_order: Option<Vec<u32>>,
    ) -> Result<Self, KernelError> {
        const WHAT: &str = "quantized matrix";
        KernelError::require(out_features > 0, WHAT, "out_features", 0, "at least 1")?;
        KernelError::require(in_features > 0, WHAT, "in_features", 0, "at least 1")?;
        let divides = group_size > 0
            && group_size.is_multiple_of(2)
            && in_features.is_multiple_of(group_size);
        let accepted = || format!("an even divisor of {in_features}");
        KernelError::require(divides, WHAT, "group_size", group_size as u64, accepted())?;
        let elements = out_features.saturating_mul(in_features);
        match &codes {
            Codes::U4(bytes) | Codes::E2M1(bytes) => {
                KernelError::require_len(WHAT, "codes", bytes.len(), elements / 2)?;
            }
            Codes::I8(codes) => KernelError::require_len(WHAT, "codes", codes.len(), elements)?,
        }
        let groups = elements / group_size;
        KernelError::require_len(WHAT, "scales", scales.len(), groups)?;
        if let Some(len) = offsets.len() {
            KernelError::require_len(WHAT, "offsets", len, groups)?;
        }
        if let (Offsets::ZeroPoints(zero_points), Codes::U4(_)) = (&offsets, &codes) {
            let bad = zero_points.iter().find(|zero| !(0..16).contains(*zero));
            let got = bad.map_or(0, |zero| u64::from(zero.cast_unsigned()));
            KernelError::require(bad.is_none(), WHAT, "zero_points", got, "0 to 15")?;
        }
        if let (Offsets::ZeroPoints(_), Codes::E2M1(_)) = (&offsets, &codes) {
            KernelError::require(false, WHAT, "zero_points", 1, "none beside floats of 4 bits")?;
        }
        if let Some(order) = &input_order {
            KernelError::require_len(WHAT, "input_order", order.len(), in_features)?;
            is_permutation(order, WHAT)?;
        }
        Ok(Self { codes, scales, offsets, input_order, out_features, in_features, group_size })
    }

    /// Returns the matrix whose row `i` is row `rows[i]` of this one.
    ///
    /// # Panics
    /// If a row is outside the matrix.
    #[must_use]
    pub fn with_rows(self, rows: &[u32]) -> Self {
        let groups = self.in_features / self.group_size;
        let codes = match self.codes {
            Codes::U4(codes) => Codes::U4(select(&codes, rows, self.in_features / 2)),
            Codes::I8(codes) => Codes::I8(select(&codes, rows, self.in_features)),
            Codes::E2M1(codes) => Codes::E2M1(select(&codes, rows, self.in_features / 2)),
        };
        let offsets = match self.offsets {
            Offsets::None => Offsets::None,
            Offsets::ZeroPoints(offsets) => Offsets::ZeroPoints(select(&offsets, rows, groups)),
            Offsets::Values(offsets) => Offsets::Values(select(&offsets, rows, groups)),
        };
        let scales = select(&self.scales, rows, groups);
        Self { codes, scales, offsets, out_features: rows.len(), ..self }
    }

    /// Returns the number of rows: the width of a product.
    #[must_use]
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Returns the number of columns: the width of an input.
    #[must_use]
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// Returns the number of neighbouring columns that share a scale.
    #[must_use]
    pub fn group_size(&self) -> usize {
        self.group_size
    }

    /// Returns the integers.
    #[must_use]
    pub fn codes(&self) -> &Codes {
        &self.codes
    }

    /// Returns the scales, `[out, in / group_size]`.
    #[must_use]
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// Returns the numbers that a code of 0 stands for.
    #[must_use]
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Returns the input of each column, where it is not the column's own index.
    #[must_use]
    pub fn input_order(&self) -> Option<&[u32]> {
        self.input_order.as_deref()
    }

    /// Returns row `o` as numbers, in the order of the inputs.
    ///
    /// # Panics
    /// If `o` is not below [`QuantizedMatrix::out_features`].
    #[must_use]
    pub fn row_f32(&self, o: usize) -> Vec<f32> {
        assert!(o < self.out_features, "row {o} of {}", self.out_features);
        let groups = self.in_features / self.group_size;
        let mut row = vec![0.0; self.in_features];
        for column in 0..self.in_features {
            let element = o * self.in_features + column;
            let code = match &self.codes {
                Codes::U4(bytes) => f32::from(bytes[element / 2] >> (4 * (element % 2)) & 15),
                Codes::I8(codes) => f32::from(codes[element]),
                Codes::E2M1(bytes) => {
                    E2M1_VALUES[usize::from(bytes[element / 2] >> (4 * (element % 2)) & 15)]
                }
            };
            let group = o * groups + column / self.group_size;
            let scale = self.scales[group];
            let input = self.input_order.as_ref().map_or(column, |order| order[column] as usize);
            row[input] = match &self.offsets {
                Offsets::None => scale * code,
                Offsets::ZeroPoints(zero_points) => scale * (code - f32::from(zero_points[group])),
                Offsets::Values(values) => scale * code + values[group],
            };
        }
        row
    }
}

/// Checks that `order` holds each of its indices once.
pub(crate) fn is_permutation(order: &[u32], what: &'static str) -> Result<(), KernelError> {
    let mut seen = vec![false; order.len()];
    for &input in order {
        let place = seen.get_mut(input as usize);
        let first = place.is_some_and(|seen| !std::mem::replace(seen, true));
        let accepted = || format!("each of 0..{} once", order.len());
        KernelError::require(first, what, "input_order", u64::from(input), accepted())?;
    }
    Ok(())
}

/// Returns rows of a matrix with rows of `width`.
fn select<T: Copy>(elements: &[T], rows: &[u32], width: usize) -> Vec<T> {
    rows.iter().flat_map(|row| &elements[*row as usize * width..][..width]).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_scales_offsets_and_order_make_a_row() {
        let codes = Codes::U4(vec![0x21, 0x43, 0x65, 0x87]);
        let (scales, offsets) = (vec![1.0, 0.5, 2.0, 10.0], vec![0.0, -1.0, 0.0, 1.0]);
        let order = Some(vec![3, 2, 1, 0]);
        let new = |offsets| {
            let (codes, scales, order) = (codes.clone(), scales.clone(), order.clone());
            QuantizedMatrix::new([2, 4], 2, codes, scales, offsets, order).unwrap()
        };
        let matrix = new(Offsets::Values(offsets));
        assert_eq!(matrix.row_f32(0), [1.0, 0.5, 2.0, 1.0]);
        assert_eq!(matrix.row_f32(1), [81.0, 71.0, 12.0, 10.0]);
        let matrix = new(Offsets::ZeroPoints(vec![1, 3, 0, 15]));
        assert_eq!(matrix.row_f32(0), [0.5, 0.0, 1.0, 0.0]);
        assert_eq!(matrix.row_f32(1), [-70.0, -80.0, 12.0, 10.0]);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let new = |group, codes, scales: usize, order| {
            QuantizedMatrix::new(
                [2, 4],
                group,
                Codes::I8(vec![0; codes]),
                vec![1.0; scales],
                Offsets::None,
                order,
            )
        };
        assert!(new(4, 8, 2, None).is_ok());
        for refused in [
            new(3, 8, 2, None),
            new(0, 8, 2, None),
            new(4, 7, 2, None),
            new(4, 8, 3, None),
            new(4, 8, 2, Some(vec![0, 1, 2])),
            new(4, 8, 2, Some(vec![0, 1, 2, 2])),
            new(4, 8, 2, Some(vec![0, 1, 2, 4])),
        ] {
            assert!(refused.is_err());
        }
        let zero_points = |zero_points: &[i8]| {
            let (codes, offsets) = (Codes::U4(vec![0; 4]), Offsets::ZeroPoints(zero_points.into()));
            QuantizedMatrix::new([2, 4], 4, codes, vec![1.0; 2], offsets, None)
        };
        assert!(zero_points(&[0, 15]).is_ok());
        for refused in [&[0, 16][..], &[-1, 0], &[0]] {
            assert!(zero_points(refused).is_err());
        }
    }
}
