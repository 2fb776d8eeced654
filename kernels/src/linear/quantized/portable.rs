//! The implementation on plain arrays.

use half::f16;

use super::e2m1::INTEGERS;
use super::isa::{CodeVector, Dots, DotsTask};
use crate::simd::LANES;

/// A type that needs no instructions beyond the target's baseline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

impl Dots for Portable {
    type Ints = [i32; LANES];
    type Floats = [f32; LANES];
    type Codes = CodeVector;

    const ROWS_MAX: usize = 1;
    const U8_LOWERED_BY: i32 = 0;

    fn enter<T: DotsTask>(self, task: T) -> T::Output {
        task.run(self)
    }

    #[inline(always)]
    fn ints(self, x: i32) -> Self::Ints {
        [x; LANES]
    }

    #[inline(always)]
    fn codes(self, src: &CodeVector) -> CodeVector {
        *src
    }

    #[inline(always)]
    fn halves(self, src: &CodeVector) -> [CodeVector; 2] {
        [src.map(|byte| byte & 15), src.map(|byte| byte >> 4)]
    }

    #[inline(always)]
    fn dot_u8(self, acc: Self::Ints, w: CodeVector, x: u32) -> Self::Ints {
        let x = x.to_le_bytes().map(|byte| i32::from(byte as i8));
        std::array::from_fn(|l| {
            (0..4).fold(acc[l], |acc, j| acc.wrapping_add(i32::from(w[4 * l + j]) * x[j]))
        })
    }

    #[inline(always)]
    fn e2m1(self, codes: CodeVector) -> CodeVector {
        codes.map(|code| INTEGERS[usize::from(code & 15)])
    }

    #[inline(always)]
    fn dot_u4(self, acc: Self::Ints, w: CodeVector, x: u32) -> Self::Ints {
        self.dot_u8(acc, w, x)
    }

    #[inline(always)]
    fn add(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        std::array::from_fn(|l| a[l].wrapping_add(b[l]))
    }

    #[inline(always)]
    fn floats(self, x: f32) -> Self::Floats {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> Self::Floats {
        *src
    }

    #[inline(always)]
    fn load_f16(self, src: &[u16; LANES]) -> Self::Floats {
        src.map(|bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    fn load_i8(self, src: &[i8; LANES]) -> Self::Floats {
        src.map(f32::from)
    }

    #[inline(always)]
    fn to_floats(self, x: Self::Ints) -> Self::Floats {
        x.map(|x| x as f32)
    }

    #[inline(always)]
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // Two roundings, because a fused multiply-add would be a library call here.
        std::array::from_fn(|l| a[l] * b[l] + c[l])
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: Self::Floats) {
        *dst = v;
    }
}
