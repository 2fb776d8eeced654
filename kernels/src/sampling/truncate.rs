//! The tokens that a draw may take: `min_p`, then `top_k`, then `top_p` over the rest.

use super::select::{by_rank, largest, not_below};
use super::{SamplingRow, SamplingScratch};

/// Returns the tokens left as (logit, id) pairs, or `None` if all are left. `best` is the
/// likeliest.
pub(super) fn apply<'a>(
    logits: &[f32],
    row: &SamplingRow<'_>,
    best: u32,
    scratch: &'a mut SamplingScratch,
) -> Option<&'a [(f32, u32)]> {
    let top_k = (row.top_k > 0 && (row.top_k as usize) < logits.len()).then_some(row.top_k);
    if top_k.is_none() && row.top_p >= 1.0 && row.min_p <= 0.0 {
        return None;
    }
    let max = logits[best as usize];
    // The condition p >= min_p * p_max, in logarithms.
    let floor = if row.min_p > 0.0 { max + row.min_p.ln() } else { f32::NEG_INFINITY };
    // Masked tokens are never kept.
    let floor = floor.max(f32::MIN);
    let kept = &mut scratch.kept;
    match top_k {
        None => {
            kept.clear();
            not_below(logits, floor, kept);
        }
        Some(k) => {
            largest(logits, floor, k as usize, kept);
            let kth = kept.iter().map(|(l, _)| *l).fold(f32::INFINITY, f32::min);
            if kept.len() == k as usize {
                // Tokens tied with the k-th stay.
                kept.clear();
                not_below(logits, kth, kept);
            }
        }
    }
    if row.top_p < 1.0 {
        nucleus(kept, max, row.top_p);
    }
    Some(kept)
}

/// Keeps the likeliest tokens. A token goes if it and all less likely ones together have a mass of
/// at most `1 - top_p`. Of tied tokens at the edge the lower ids stay. The likeliest always stays.
fn nucleus(kept: &mut Vec<(f32, u32)>, max: f32, top_p: f32) {
    let weight = |logit: f32| f64::from((logit - max).exp());
    let total = keep_bins(kept, max, top_p);
    let tail_max = f64::from(1.0 - top_p) * total;
    let mut before = 0.0;
    let mut sorted = 0;
    let mut count = 0;
    while count < kept.len() && (count == 0 || total - before > tail_max) {
        if count == sorted {
            sorted = sort_more(kept, sorted);
        }
        before += weight(kept[count].0);
        count += 1;
    }
    kept.truncate(count);
}

/// Drops tokens that are certain to go, by a histogram of logits, so that the rest is cheap to
/// sort. Returns the mass of all tokens, relative to the likeliest token.
fn keep_bins(kept: &mut Vec<(f32, u32)>, max: f32, top_p: f32) -> f64 {
    const BINS: usize = 256;
    const BINS_PER_NAT: f32 = 8.0;
    let bin = |logit: f32| (((max - logit) * BINS_PER_NAT) as usize).min(BINS - 1);
    let mut masses = [0.0; BINS];
    for (logit, _) in kept.iter() {
        masses[bin(*logit)] += f64::from((logit - max).exp());
    }
    let total: f64 = masses.iter().sum();
    // A little more than the nucleus may need, because the sums here run in another order.
    let tail_max = f64::from(1.0 - top_p) * total - 1e-9 * total;
    let mut before = 0.0;
    let mut last = 0;
    while last + 1 < BINS && total - (before + masses[last]) > tail_max {
        before += masses[last];
        last += 1;
    }
    kept.retain(|(logit, _)| bin(*logit) <= last);
    total
}

/// Extends the sorted beginning of `kept`, eightfold each time. Returns its new length.
fn sort_more(kept: &mut [(f32, u32)], sorted: usize) -> usize {
    let end = (sorted * 8).max(64).min(kept.len());
    let rest = &mut kept[sorted..];
    if end - sorted < rest.len() {
        rest.select_nth_unstable_by(end - sorted, by_rank);
    }
    rest[..end - sorted].sort_unstable_by(by_rank);
    end
}
