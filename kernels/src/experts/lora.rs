//! Adapters of experts: each row of the experts' products gets the product of its adapter's
//! matrices for its expert. The header of [`lora`](crate::add_lora) has the maths and tolerance.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::Experts;
use super::plan::Plan;
use crate::hot_ops::HotOps;
use crate::{LoraSegment, LoraWeights, Routing};

/// The tokens of one adapter, and its matrices.
#[derive(Debug, Clone)]
pub struct ExpertSegment<'a> {
    /// The tokens, each at most once in all segments.
    pub tokens: &'a [u32],
    /// Those of each expert: for the outputs of `gate_up`, and for those of `down`. `None` where
    /// the adapter changes nothing.
    pub experts: Vec<[Option<&'a LoraWeights>; 2]>,
}

/// Computes the same as [`experts`](super::experts()), with the adapters of some tokens. A token
/// of no segment has the bytes that it has without adapters.
///
/// # Panics
/// As [`experts`](super::experts()). Also if a segment has another number of experts, matrices of
/// other widths, or a token that x lacks. Also on a GPU: see [`Experts::takes_adapters`].
#[must_use]
pub fn experts_with_lora(
    x: Tensor<2>,
    routing: &Routing,
    experts: &Experts,
    segments: &[ExpertSegment<'_>],
) -> Tensor<2> {
    let x = x.into_dispatch();
    Tensor::from_dispatch(Dispatch::experts_with_lora(x, routing, experts, segments))
}

/// The rows of one adapter and one expert.
pub(super) struct Changed<'a> {
    weights: [Option<&'a LoraWeights>; 2],
    rows: Vec<u32>,
}

/// Returns the rows of a plan over `num_experts` experts that adapters change.
pub(super) fn changed<'a>(
    plan: &Plan,
    routing: &Routing,
    num_experts: usize,
    segments: &[ExpertSegment<'a>],
) -> Vec<Changed<'a>> {
    let top_k = routing.top_k();
    let mut changed = Vec::new();
    for ExpertSegment { tokens, experts } in segments {
        assert_eq!(experts.len(), num_experts, "experts_with_lora: experts of a segment");
        let mut rows = vec![Vec::new(); num_experts];
        for token in *tokens {
            assert!((*token as usize) < routing.num_tokens(), "experts_with_lora: token {token}");
            let first = *token as usize * top_k;
            let choices = &routing.choices()[first..first + top_k];
            for (choice, row) in choices.iter().zip(&plan.rows[first..]) {
                // Identities have no row, and no adapter.
                if let Some(rows) = rows.get_mut(choice.expert as usize) {
                    rows.push(*row);
                }
            }
        }
        let of_experts = experts.iter().zip(rows).filter(|(_, rows)| !rows.is_empty());
        changed.extend(of_experts.map(|(weights, rows)| Changed { weights: *weights, rows }));
    }
    changed
}

/// Returns the rows with the matrices for one of the two products.
pub(super) fn segments<'a>(changed: &'a [Changed<'_>], product: usize) -> Vec<LoraSegment<'a>> {
    let segment = |each: &'a Changed<'_>| {
        let weights = each.weights[product]?;
        Some(LoraSegment { weights, rows: &each.rows })
    };
    changed.iter().filter_map(segment).collect()
}
