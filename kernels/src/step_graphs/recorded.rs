//! A step that can be computed again, with other numbers in the same places.

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::bytes::Bytes;
use cubecl::client::{Client, Graph};
use cubecl::server::{Handle, ServerError};

use crate::AttentionMetadata;
use crate::cube::{StepInput, into_tensor};
use crate::paged_attention::cube::{Plan, PlanOf};

/// A recorded step.
pub(super) struct Recorded {
    pub(super) inputs: Vec<(StepInput, Handle)>,
    pub(super) output: CubeTensor,
    pub(super) graph: Graph,
}

impl Recorded {
    /// Returns the step's result for this batch. `plans` are the plans of `known`, in the same
    /// order.
    pub(super) fn replay(
        &self,
        client: &Client,
        token_ids: &[u32],
        metas: &[AttentionMetadata],
        known: &[PlanOf],
        plans: &[Plan],
    ) -> Result<Tensor<2>, ServerError> {
        for (input, handle) in &self.inputs {
            // A replay skips the operations' checks, so they are made here.
            if let StepInput::Plan(of) = input {
                of.check_slots(&metas[of.group()].slot_mapping);
            }
            let of_states;
            let numbers = match input {
                // It is the same in every replay.
                StepInput::HeadRows { .. } => continue,
                StepInput::States(of) => {
                    of_states = of.plan(&metas[of.group()]).words;
                    &of_states
                }
                StepInput::TokenIds => token_ids,
                StepInput::Positions => &metas[0].positions,
                StepInput::Slots(group) => &metas[*group].slot_mapping,
                StepInput::Plan(of) => {
                    match known.iter().zip(plans).find(|(known, _)| *known == of) {
                        Some((_, plan)) => &plan.words,
                        None => unreachable!("a step has the plans that the first one had"),
                    }
                }
            };
            client.write(handle, Bytes::from_elems(numbers.to_vec()));
        }
        self.run()
    }

    /// Computes the step from the current content of the inputs.
    pub(super) fn run(&self) -> Result<Tensor<2>, ServerError> {
        // SAFETY: this object holds the inputs and the output, and the graph the memory in between.
        // Weights and KV cache live as long as the `forward` that the next step needs. The caller
        // has the KV cache and its queue to itself.
        unsafe { self.graph.replay() }?;
        Ok(into_tensor(self.output.clone()))
    }
}
