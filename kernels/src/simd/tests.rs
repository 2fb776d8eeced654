//! Every instruction set agrees with plain arithmetic.

use half::bf16;
use proptest::prelude::*;

use super::*;

/// The function `exp` of sixteen values.
struct Exp([f32; LANES]);

impl Kernel for Exp {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        s.store(&mut out, exp(s, s.load(&self.0)));
        out
    }
}

/// The functions `expm1`, `tanh` and `softplus` of sixteen values.
struct NearZero([f32; LANES]);

impl Kernel for NearZero {
    type Output = [[f32; LANES]; 3];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = [[0.0; LANES]; 3];
        let x = s.load(&self.0);
        s.store(&mut out[2], softplus(s, x));
        s.store(&mut out[0], expm1(s, x));
        s.store(&mut out[1], tanh(s, x));
        out
    }
}

/// One step of a bf16 sum.
struct DotPair([f32; 2], [u16; 2 * LANES]);

impl Kernel for DotPair {
    type Output = [f32; LANES];
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        let pair = s.pair(self.0[0], self.0[1]);
        s.store(&mut out, s.dot_pair(s.splat(1.0), &pair, &self.1));
        out
    }
}

/// Sixteen int8 as f32.
struct WidenInt8([i8; LANES]);

impl Kernel for WidenInt8 {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        s.store(&mut out, s.widen_int8(&self.0));
        out
    }
}

/// Fields of 4 and of 8 bits, and a pair of vectors side by side as bf16.
struct Fields<'a>(&'a [u8; 4 * LANES]);

impl Kernel for Fields<'_> {
    type Output = ([[f32; LANES]; 3], Option<[u16; 2 * LANES]>);
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let fields =
            [s.field::<0>(self.0, 0xFF), s.field::<20>(self.0, 0xF), s.field::<24>(self.0, 0xFF)];
        let mut out = [[0.0; LANES]; 3];
        for (out, field) in out.iter_mut().zip(fields) {
            s.store(out, field);
        }
        let mut pairs = [0; 2 * LANES];
        if !S::HAS_DOT_BF16 {
            return (out, None);
        }
        let third = s.splat(1.0 / 3.0);
        s.narrow_pairs(&mut pairs, s.mul(fields[1], third), s.mul(fields[2], third));
        (out, Some(pairs))
    }
}

/// Sum and maximum of a vector. Sum, sum of squares and squared deviations from 0.5 of a row.
struct Folds<'a>(&'a [f32; LANES], &'a [f32]);

impl Kernel for Folds<'_> {
    type Output = [f32; 5];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; 5] {
        let (v, row) = (s.load(self.0), self.1);
        let deviations = sum_of_squared_deviations(s, row, 0.5);
        [sum_of(s, v), max_of(s, v), sum_of_squares(s, row), sum_of_row(s, row), deviations]
    }
}

#[test]
fn portable_is_always_available_and_names_differ() {
    let names: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    assert_eq!(names.last(), Some(&"portable"));
    let mut unique = names.clone();
    unique.dedup();
    assert_eq!(names, unique);
    assert!(names.contains(&cpu_isa()));
}

#[test]
fn every_int8_widens_exactly() {
    for isa in Isa::available() {
        for first in (-128_i16..128).step_by(LANES) {
            let codes: [i8; LANES] = std::array::from_fn(|i| (first + i as i16) as i8);
            assert_eq!(isa.run(WidenInt8(codes)), codes.map(f32::from), "{}", isa.name());
        }
    }
}

#[test]
fn fields_of_words_are_whole_numbers_above_their_base() {
    let words: [u8; 4 * LANES] = std::array::from_fn(|i| (i * 37 + 200) as u8);
    let lanes = words.as_chunks::<4>().0;
    let field = |of: fn([u8; 4]) -> u8| -> [f32; LANES] {
        std::array::from_fn(|l| FIELD_BASE + f32::from(of(lanes[l])))
    };
    let expected = [field(|word| word[0]), field(|word| word[2] >> 4), field(|word| word[3])];
    for isa in Isa::available() {
        let (fields, pairs) = isa.run(Fields(&words));
        assert_eq!(fields, expected, "{}", isa.name());
        assert_eq!(pairs.is_some(), isa.rounds_pairs());
        for (l, pair) in pairs.iter().flat_map(|pairs| pairs.as_chunks::<2>().0).enumerate() {
            let nearest = |x: f32| bf16::from_f32(x * (1.0 / 3.0)).to_bits();
            assert_eq!(*pair, [nearest(expected[1][l]), nearest(expected[2][l])]);
        }
    }
}

#[test]
fn exp_keeps_its_special_values() {
    for isa in Isa::available() {
        let mut x = [0.0; LANES];
        x[1] = f32::NEG_INFINITY;
        x[2] = f32::NAN;
        x[3] = -200.0;
        x[4] = 200.0;
        x[5] = f32::INFINITY;
        let y = isa.run(Exp(x));
        assert_eq!((y[0], y[1], y[3]), (1.0, 0.0, 0.0), "{}", isa.name());
        assert!(y[2].is_nan(), "{}", isa.name());
        assert!(y[4] > 2e38 && y[4].is_finite() && y[5] == y[4], "{}", isa.name());
    }
}

#[test]
fn expm1_and_tanh_keep_their_special_values() {
    for isa in Isa::available() {
        let mut x = [0.0; LANES];
        x[1] = f32::NEG_INFINITY;
        x[2] = f32::NAN;
        x[3] = -200.0;
        x[4] = 200.0;
        x[5] = f32::INFINITY;
        let [e, t, p] = isa.run(NearZero(x));
        assert_eq!([p[1], p[3], p[4]], [0.0, 0.0, 200.0], "{}", isa.name());
        assert!(p[2].is_nan() && p[5] == f32::INFINITY, "{}", isa.name());
        assert_eq!([e[0], e[1], e[3]], [0.0, -1.0, -1.0], "{}", isa.name());
        assert!(e[2].is_nan() && t[2].is_nan(), "{}", isa.name());
        assert!(e[4] > 2e38 && e[4].is_finite(), "{}", isa.name());
        assert_eq!([t[0], t[1], t[3], t[4], t[5]], [0.0, -1.0, -1.0, 1.0, 1.0], "{}", isa.name());
    }
}

proptest! {
    #[test]
    fn expm1_and_tanh_are_exact_in_their_size(size in -20.0f32..4.4, negative: bool) {
        let x = size.exp() * if negative { -1.0 } else { 1.0 };
        for isa in Isa::available() {
            let [e, t, p] = isa.run(NearZero([x; LANES]));
            let softplus = f64::from(x).exp().ln_1p();
            for (got, exact) in
                [(e[3], f64::from(x).exp_m1()), (t[3], f64::from(x).tanh()), (p[3], softplus)]
            {
                let error = (f64::from(got) - exact).abs();
                prop_assert!(error <= 1e-6 * exact.abs(), "{}: {x}: {got} {exact}", isa.name());
            }
        }
    }

    #[test]
    fn rounding_to_bf16_is_to_nearest_even(bits: u32) {
        let x = f32::from_bits(bits);
        prop_assert_eq!(element::bf16_bits(x), bf16::from_f32(x).to_bits());
    }

    #[test]
    fn exp_is_within_three_ulp(x in -87.0f32..88.0) {
        for isa in Isa::available() {
            let exact = f64::from(x).exp();
            let error = (f64::from(isa.run(Exp([x; LANES]))[7]) - exact).abs() / exact;
            prop_assert!(error < 3.0 * f64::from(f32::EPSILON), "{}: {x}: {error}", isa.name());
        }
    }

    #[test]
    fn dot_pair_adds_two_products(a in -4.0f32..4.0, b in -4.0f32..4.0, seed in 0u16..1000) {
        let w: [f32; 2 * LANES] =
            std::array::from_fn(|i| ((i as f32 + f32::from(seed)) * 0.37).sin());
        let bits = w.map(|w| bf16::from_f32(w).to_bits());
        for isa in Isa::available() {
            let y = isa.run(DotPair([a, b], bits));
            let round = |x: f32| if isa.rounds_pairs() { bf16::from_f32(x).to_f32() } else { x };
            for (i, y) in y.into_iter().enumerate() {
                let w = |j: usize| f64::from(bf16::from_bits(bits[2 * i + j]).to_f32());
                let exact = 1.0 + f64::from(round(a)) * w(0) + f64::from(round(b)) * w(1);
                prop_assert!((f64::from(y) - exact).abs() < 2e-6, "{}: {y} {exact}", isa.name());
            }
        }
    }

    #[test]
    fn folds_agree_on_every_instruction_set(
        row in prop::collection::vec(-2.0f32..2.0, 16..100),
    ) {
        let first: [f32; LANES] = row[..LANES].try_into().unwrap();
        let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
        let deviations: f64 = row.iter().map(|x| (f64::from(*x) - 0.5).powi(2)).sum();
        let total: f64 = row.iter().map(|x| f64::from(*x)).sum();
        let sum: f64 = first.iter().map(|x| f64::from(*x)).sum();
        let max = first.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for isa in Isa::available() {
            let [s, m, q, all, d] = isa.run(Folds(&first, &row));
            prop_assert!((f64::from(all) - total).abs() < 1e-4);
            prop_assert!((f64::from(d) - deviations).abs() < 2e-4);
            prop_assert!((f64::from(s) - sum).abs() < 1e-5);
            prop_assert_eq!(m, max);
            prop_assert!((f64::from(q) - squares).abs() < 1e-4);
        }
    }
}
