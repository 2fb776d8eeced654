//! The largest elements of a row, by selection: one pass and a buffer of about `2 k`, no sort of
//! the vocabulary.

use std::cmp::Ordering;

/// The largest logit, NaN aside; −∞ for an empty row. In lanes, so that it vectorises.
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

/// Larger logits first, lower ids first among equals.
pub(super) fn by_rank(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The `k` largest of (logit, id) pairs given in ascending id order, unordered, in `buffer`; all of
/// them if there are fewer.
pub(super) fn largest(
    pairs: impl Iterator<Item = (f32, u32)>,
    k: usize,
    buffer: &mut Vec<(f32, u32)>,
) {
    buffer.clear();
    if k == 0 {
        return;
    }
    let capacity = 2 * k + 64;
    // An element that only equals the k-th so far ranks after it, having a higher id.
    let mut threshold = f32::NEG_INFINITY;
    let mut full = false;
    for (logit, id) in pairs {
        if full && logit <= threshold {
            continue;
        }
        buffer.push((logit, id));
        if buffer.len() == capacity {
            threshold = cut(buffer, k);
            full = true;
        }
    }
    if buffer.len() > k {
        cut(buffer, k);
    }
}

/// Leaves the `k` first by rank; returns the k-th logit.
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
            row in prop::collection::vec(-3i8..3, 0..400),
            k in 0usize..40,
        ) {
            let pairs: Vec<(f32, u32)> = row.iter().map(|x| f32::from(*x)).zip(0..).collect();
            let mut sorted = pairs.clone();
            sorted.sort_by(by_rank);
            sorted.truncate(k);
            let mut selected = Vec::new();
            largest(pairs.into_iter(), k, &mut selected);
            selected.sort_by(by_rank);
            prop_assert_eq!(selected, sorted);
        }
    }
}
