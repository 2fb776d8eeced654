//! Products of groups of rows, where each group has a weight of its own: the experts of a mixture.
//! All threads share the pieces of all products, so that none waits between two of them. A row has
//! the same bytes as in a product of its group alone.

use std::ops::Range;

use super::cpu::{fuses_swiglu, multiply};
use super::{LinearStorage, LinearWeight, products, quantized};
use crate::WeightVector;
use crate::simd::Isa;
use crate::threads::num_threads;
use crate::workspace::Scratch;

/// Groups of neighbouring rows, each with the weight that it is multiplied with. All weights have
/// one shape and are on the CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowGroups<'a> {
    /// All weights; some may belong to no group.
    pub(crate) weights: &'a [LinearWeight],
    /// The bias of each weight.
    pub(crate) biases: Option<&'a [WeightVector]>,
    /// The weight of each group.
    pub(crate) chosen: &'a [u32],
    /// The first row of each group, then the number of rows.
    pub(crate) starts: &'a [u32],
}

impl<'a> RowGroups<'a> {
    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.chosen.len()
    }

    /// Returns the rows of a group.
    pub(super) fn rows(&self, group: usize) -> Range<usize> {
        self.starts[group] as usize..self.starts[group + 1] as usize
    }

    /// Returns the weight of a group.
    pub(super) fn weight(&self, group: usize) -> &'a LinearWeight {
        &self.weights[self.chosen[group] as usize]
    }

    /// Returns the bias of a group, if groups have biases.
    pub(super) fn bias(&self, group: usize) -> Option<&'a [f32]> {
        self.biases.map(|biases| biases[self.chosen[group] as usize].cpu())
    }

    /// Returns the threads that the pieces of each product must be enough for.
    pub(super) fn threads_each(&self) -> usize {
        num_threads().div_ceil(self.len())
    }

    /// Returns whether [`grouped`] can gate: all products must be able to, without a bias.
    pub(crate) fn can_gate(&self, isa: Isa) -> bool {
        let fuses = |weight: &LinearWeight| match &weight.storage {
            LinearStorage::Cpu(packed) => fuses_swiglu(isa, packed, weight.out_features),
            _ => false,
        };
        self.biases.is_none() && self.len() > 0 && self.are_alike() && fuses(self.weight(0))
    }

    /// Returns whether one pass can compute all products.
    fn are_alike(&self) -> bool {
        (1..self.len()).all(|group| self.weight(0).is_like(self.weight(group)))
    }
}

/// Computes `x Wᵀ + b` of each group, from row-major x `[rows, in]` to y `[rows, out]`. With
/// `gates`, where [`RowGroups::can_gate`], the result is `silu(gate) · up`, `[rows, out / 2]`.
pub(crate) fn grouped(isa: Isa, x: &[f32], groups: &RowGroups<'_>, gates: bool, y: &mut [f32]) {
    if groups.len() == 0 {
        return;
    }
    match &groups.weight(0).storage {
        _ if !groups.are_alike() => one_by_one(isa, x, groups, y),
        LinearStorage::Cpu(packed) if products::takes(isa, packed) => {
            products::grouped(isa, x, groups, gates, y);
        }
        LinearStorage::CpuQuantized(_) => quantized::grouped(isa, x, groups, y),
        _ => one_by_one(isa, x, groups, y),
    }
}

/// Computes one product after the other.
fn one_by_one(isa: Isa, x: &[f32], groups: &RowGroups<'_>, y: &mut [f32]) {
    for group in 0..groups.len() {
        let (rows, weight) = (groups.rows(group), groups.weight(group));
        let part = |width: usize| rows.start * width..rows.end * width;
        let (x, y) = (&x[part(weight.in_features)], &mut y[part(weight.out_features)]);
        multiply(isa, x, weight, groups.bias(group), y);
    }
}

/// Pieces of several works, numbered through.
pub(crate) struct Counted {
    /// The first piece of each work, then the number of pieces.
    firsts: Scratch<u32>,
}

impl Counted {
    /// Numbers the pieces of `works` works, of which each has `count(work)`.
    pub(crate) fn new(works: usize, count: impl Fn(usize) -> usize) -> Self {
        let mut firsts = Scratch::new(works + 1);
        let mut total = 0;
        for (work, first) in firsts.iter_mut().enumerate() {
            *first = total;
            total += if work < works { count(work) as u32 } else { 0 };
        }
        Self { firsts }
    }

    /// Returns the number of pieces of all works.
    pub(crate) fn total(&self) -> usize {
        self.firsts.last().map_or(0, |total| *total as usize)
    }

    /// Returns the work of a piece, and the piece's number there.
    #[inline]
    pub(crate) fn place(&self, piece: usize) -> (usize, usize) {
        let work = self.firsts.partition_point(|first| *first as usize <= piece) - 1;
        (work, piece - self.firsts[work] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_numbered_through_all_works() {
        let counts = [0, 3, 0, 0, 1, 2, 0];
        let counted = Counted::new(counts.len(), |work| counts[work]);
        assert_eq!(counted.total(), 6);
        let places: Vec<_> = (0..6).map(|piece| counted.place(piece)).collect();
        assert_eq!(places, [(1, 0), (1, 1), (1, 2), (4, 0), (5, 0), (5, 1)]);
        assert_eq!(Counted::new(0, |_| 1).total(), 0);
    }
}
