//! Adapters of experts: each row of the experts' products gets the product of its adapter's
//! matrices for its expert. The header of [`lora`](crate::add_lora) has the maths and tolerance.

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use super::Experts;
#[cfg(feature = "gpu")]
use super::cube::CubeLora;
use super::plan::Plan;
use crate::device::Place;
use crate::hot_ops::HotOps;
#[cfg(feature = "gpu")]
use crate::lora::blocks;
use crate::{KernelError, LoraPair, LoraSegment, LoraWeights, Routing, WeightDtype};

pub(super) const WHAT: &str = "LoRA weights of experts";

/// The matrices of one adapter for one of the two products of all experts of a layer, on its
/// device. An expert without matrices stays as it is.
#[derive(Debug)]
pub struct ExpertLora {
    storage: Storage,
    num_experts: usize,
    /// `[outputs, inputs]` of an expert's product.
    shape: [usize; 2],
}

/// The matrices in memory, by device.
#[derive(Debug)]
#[cfg_attr(
    feature = "gpu",
    allow(clippy::large_enum_variant, reason = "there are two for each layer of an adapter")
)]
enum Storage {
    /// By expert.
    Cpu(Vec<Option<LoraWeights>>),
    #[cfg(feature = "gpu")]
    Cube(CubeLora),
}

impl ExpertLora {
    /// Packs the pairs of each expert, in the order of the router's logits. Each expert's product
    /// is `[inputs] → [outputs]`. On the CPU, elements are kept as `dtype`, and on a GPU as f32.
    ///
    /// # Errors
    /// No pairs, a matrix of another length, outputs that an expert lacks, a device without
    /// kernels, or too little memory.
    pub fn pack(
        experts: &[Vec<LoraPair<'_>>],
        shape: [usize; 2],
        dtype: WeightDtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let has_pairs = experts.iter().any(|pairs| !pairs.is_empty());
        KernelError::require(has_pairs, WHAT, "pairs", 0, "at least 1")?;
        let storage = match Place::of(device, WHAT)? {
            Place::Cpu => {
                let pack = |pairs: &Vec<LoraPair<'_>>| match &pairs[..] {
                    [] => Ok(None),
                    pairs => LoraWeights::pack(pairs, shape, dtype, device).map(Some),
                };
                Storage::Cpu(experts.iter().map(pack).collect::<Result<_, _>>()?)
            }
            #[cfg(feature = "gpu")]
            Place::Cube(device) => {
                let blocks: Result<Vec<_>, _> =
                    experts.iter().map(|pairs| blocks(pairs, shape)).collect();
                Storage::Cube(CubeLora::new(experts, &blocks?, shape[1], &device)?)
            }
        };
        Ok(Self { storage, num_experts: experts.len(), shape })
    }

    /// Returns the bytes of the matrices.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match &self.storage {
            Storage::Cpu(experts) => experts.iter().flatten().map(LoraWeights::size_bytes).sum(),
            #[cfg(feature = "gpu")]
            Storage::Cube(stacked) => stacked.size_bytes(),
        }
    }

    /// Returns the matrices of an expert on the CPU.
    ///
    /// # Panics
    /// If they are on a GPU.
    fn of_expert(&self, expert: usize) -> Option<&LoraWeights> {
        match &self.storage {
            Storage::Cpu(experts) => experts[expert].as_ref(),
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => {
                unreachable!("experts_with_lora: x is on the CPU, the weights are not")
            }
        }
    }

    /// Returns the matrices on a GPU.
    ///
    /// # Panics
    /// If they are on the CPU.
    #[cfg(feature = "gpu")]
    pub(super) fn on_gpu(&self) -> &CubeLora {
        match &self.storage {
            Storage::Cube(stacked) => stacked,
            Storage::Cpu(_) => {
                unreachable!("experts_with_lora: x is on a GPU, the weights are not")
            }
        }
    }
}

/// The tokens of one adapter, and its matrices.
#[derive(Debug, Clone, Copy)]
pub struct ExpertSegment<'a> {
    /// The tokens, each at most once in all segments.
    pub tokens: &'a [u32],
    /// The matrices for the outputs of `gate_up`, and for those of `down`. `None` where the
    /// adapter changes nothing.
    pub weights: [Option<&'a ExpertLora>; 2],
}

/// Computes the same as [`experts`](super::experts()), with the adapters of some tokens. A token
/// of no segment has the bytes that it has without adapters.
///
/// A step on a GPU that does this is not recorded, because a replay could not renew the tokens.
///
/// # Panics
/// As [`experts`](super::experts()). Also if matrices are those of another number of experts, of
/// other widths or on another device. Also if a segment has a token that x lacks.
#[must_use]
pub fn experts_with_lora(
    x: Tensor<2>,
    routing: &Routing,
    experts: &Experts,
    segments: &[ExpertSegment<'_>],
) -> Tensor<2> {
    check(routing, experts, segments);
    let x = x.into_dispatch();
    Tensor::from_dispatch(Dispatch::experts_with_lora(x, routing, experts, segments))
}

/// Asserts that the segments fit the experts and the tokens.
fn check(routing: &Routing, experts: &Experts, segments: &[ExpertSegment<'_>]) {
    let Experts { num_experts, hidden, intermediate, activation, .. } = *experts;
    let shapes = [[activation.inputs() * intermediate, hidden], [hidden, intermediate]];
    for ExpertSegment { tokens, weights } in segments {
        for (weights, shape) in weights.iter().zip(shapes) {
            let Some(weights) = weights else { continue };
            assert_eq!(weights.num_experts, num_experts, "experts_with_lora: experts");
            assert_eq!(weights.shape, shape, "experts_with_lora: widths of the matrices");
        }
        for token in *tokens {
            assert!((*token as usize) < routing.num_tokens(), "experts_with_lora: token {token}");
        }
    }
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
    for ExpertSegment { tokens, weights } in segments {
        let mut rows = vec![Vec::new(); num_experts];
        for token in *tokens {
            let first = *token as usize * top_k;
            let choices = &routing.choices()[first..first + top_k];
            for (choice, row) in choices.iter().zip(&plan.rows[first..]) {
                // Identities have no row, and no adapter.
                if let Some(rows) = rows.get_mut(choice.expert as usize) {
                    rows.push(*row);
                }
            }
        }
        let of_experts = rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        changed.extend(of_experts.map(|(expert, rows)| {
            let weights = weights.map(|weights| weights?.of_expert(expert));
            Changed { weights, rows }
        }));
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
