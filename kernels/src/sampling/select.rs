//! The largest elements of a row, by selection: one pass and a buffer of about `2 k`, without a
//! sort of the vocabulary.

use std::cmp::Ordering;

use crate::simd::{Isa, Kernel, LANES, Simd, max_of, sum_of};

/// The result of one pass over a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scan {
    /// The largest logit's token, the lowest id where it is tied; `None` if all are −∞.
    pub(super) best: Option<u32>,
    /// Whether a logit is NaN or +∞; `best` is then meaningless.
    pub(super) is_garbage: bool,
}

/// Reads every logit once.
pub(super) fn scan(logits: &[f32]) -> Scan {
    Isa::active().run(ScanRow(logits))
}

struct ScanRow<'a>(&'a [f32]);

impl Kernel for ScanRow<'_> {
    type Output = Scan;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Scan {
        const STRETCH: usize = 64 * LANES;
        let (lowest, zero) = (s.splat(f32::NEG_INFINITY), s.splat(0.0));
        // Stays 0 · x = 0 unless an x is NaN or +∞. −∞ is a legal mask, so it is first made finite.
        let mut poison = zero;
        let (mut max, mut best_stretch) = (f32::NEG_INFINITY, None);
        for (index, stretch) in self.0.chunks(STRETCH).enumerate() {
            let (vectors, rest) = stretch.as_chunks::<LANES>();
            let mut padded = [f32::NEG_INFINITY; LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let mut stretch_max = lowest;
            for x in vectors.iter().chain([&padded]) {
                let x = s.load(x);
                stretch_max = s.max(x, stretch_max);
                poison = s.fma(s.max(s.splat(f32::MIN), x), zero, poison);
            }
            let stretch_max = max_of(s, stretch_max);
            if stretch_max > max {
                (max, best_stretch) = (stretch_max, Some(index));
            }
        }
        let best = best_stretch.and_then(|index| {
            let first = index * STRETCH;
            let offset = self.0[first..].iter().position(|logit| *logit == max)?;
            Some((first + offset) as u32)
        });
        Scan { best, is_garbage: sum_of(s, poison).is_nan() }
    }
}

/// Returns the largest logit, ignoring NaN; −∞ for an empty row. It uses lanes, so that it
/// vectorises.
#[inline(always)]
pub(super) fn max_logit(logits: &[f32]) -> f32 {
    const LANES: usize = 16;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut max = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        max = std::array::from_fn(|i| larger(max[i], chunk[i]));
    }
    max.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
}

/// Orders larger logits first, and lower ids first among equals.
pub(super) fn by_rank(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Selects the `k` largest logits of a row that are not below `floor`, as (logit, id) pairs,
/// unordered, into `buffer`. Of equal logits it takes the lower ids. If there are fewer, it takes
/// all. It skips NaN.
pub(super) fn largest(logits: &[f32], floor: f32, k: usize, buffer: &mut Vec<(f32, u32)>) {
    buffer.clear();
    if k > 0 {
        Isa::active().run(Largest { logits, floor, k, buffer });
    }
}

/// Appends the logits of a row that are not below `floor` to `buffer`, with their ids.
pub(super) fn not_below(logits: &[f32], floor: f32, buffer: &mut Vec<(f32, u32)>) {
    Isa::active().run(Largest { logits, floor, k: usize::MAX, buffer });
}

/// The selection from one row. The maximum of a chunk shows for most chunks that they can be
/// skipped.
struct Largest<'a> {
    logits: &'a [f32],
    floor: f32,
    k: usize,
    buffer: &'a mut Vec<(f32, u32)>,
}

impl Kernel for Largest<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        const CHUNK: usize = 128;
        let Self { logits, floor, k, buffer } = self;
        let capacity = k.saturating_mul(2).saturating_add(64);
        // Once there are k, an element equal to the k-th ranks after it, because its id is higher.
        let mut kth = None;
        for (chunk, first) in logits.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            let matters = |logit: f32| kth.map_or(logit >= floor, |kth| logit > kth);
            if !matters(max_logit(chunk)) {
                continue;
            }
            for (logit, id) in chunk.iter().copied().zip(first..) {
                if kth.map_or(logit >= floor, |kth| logit > kth) {
                    buffer.push((logit, id));
                }
                if buffer.len() == capacity {
                    kth = Some(cut(buffer, k));
                }
            }
        }
        if buffer.len() > k {
            cut(buffer, k);
        }
    }
}

/// Keeps the `k` first by rank. Returns the k-th logit.
fn cut(buffer: &mut Vec<(f32, u32)>, k: usize) -> f32 {
    let (_, kth, _) = buffer.select_nth_unstable_by(k - 1, by_rank);
    let threshold = kth.0;
    buffer.truncate(k);
    threshold
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_logit_is_found_anywhere(row in prop::collection::vec(-9.0f32..9.0, 0..70)) {
            let expected = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            prop_assert_eq!(max_logit(&row), expected);
        }

        #[test]
        fn selection_equals_a_sort(
            row in prop::collection::vec(-9i8..9, 0..900),
            k in 0usize..40,
            floor in -9i8..9,
        ) {
            let row: Vec<f32> = row.iter().map(|x| f32::from(*x)).collect();
            let floor = f32::from(floor);
            let mut sorted: Vec<(f32, u32)> =
                row.iter().copied().zip(0..).filter(|(logit, _)| *logit >= floor).collect();
            let mut all = Vec::new();
            not_below(&row, floor, &mut all);
            prop_assert_eq!(&all, &sorted);
            sorted.sort_by(by_rank);
            sorted.truncate(k);
            let mut selected = Vec::new();
            largest(&row, floor, k, &mut selected);
            selected.sort_by(by_rank);
            prop_assert_eq!(selected, sorted);
        }

        /// Every kind of logit that a row may hold, at any place, on every instruction set.
        #[test]
        fn a_scan_finds_the_first_of_the_largest_and_any_garbage(
            row in prop::collection::vec(-9i8..9, 0..3000),
            strange in prop::collection::vec(
                (any::<prop::sample::Index>(), 0usize..6), 0..4),
        ) {
            const STRANGE: [f32; 6] =
                [f32::NEG_INFINITY, f32::NAN, f32::INFINITY, -0.0, f32::MAX, f32::MIN];
            let mut row: Vec<f32> = row.iter().map(|x| f32::from(*x)).collect();
            let len = row.len();
            for (place, kind) in strange.iter().filter(|_| len > 0) {
                row[place.index(len)] = STRANGE[*kind];
            }
            let is_garbage = row.iter().any(|x| x.is_nan() || *x == f32::INFINITY);
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let best = row.iter().position(|x| *x == max && max > f32::NEG_INFINITY);
            for isa in Isa::available() {
                let scan = isa.run(ScanRow(&row));
                prop_assert_eq!(scan.is_garbage, is_garbage);
                if !is_garbage {
                    prop_assert_eq!(scan.best, best.map(|i| i as u32));
                }
            }
        }
    }
}
