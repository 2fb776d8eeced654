//! Recordings through CubeCL: a CUDA graph, or on wgpu the launches with everything looked up.

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::bytes::Bytes;
use cubecl::client::{Client, Graph};
use cubecl::server::{Handle, ServerError};

use super::StepGraphStats;
use crate::AttentionMetadata;
use crate::cube::{Recording, StepInput, device_tensor, into_tensor};
use crate::paged_attention::cube::{Plan, PlanForm, PlanOf};

/// Recordings kept. Each holds the memory of its activations.
const KEPT: usize = 32;

type Forward<'a> = &'a mut (dyn FnMut(&[u32], &AttentionMetadata) -> Tensor<2> + Send);

/// The recordings on one device.
pub(super) struct CubeGraphs {
    client: Client,
    /// The last used comes last.
    recorded: Vec<Recorded>,
    /// The plans that a step has: the same in each.
    plans: Vec<PlanOf>,
    stats: StepGraphStats,
    /// Why there will be no more.
    failure: Option<String>,
    is_failure_told: bool,
}

/// A step that can be computed again, for other numbers in the same places.
struct Recorded {
    rows: usize,
    /// In the order of [`CubeGraphs::plans`].
    forms: Vec<PlanForm>,
    inputs: Vec<(StepInput, Handle)>,
    output: CubeTensor,
    graph: Graph,
}

/// What a recording gives.
struct Captured {
    output: CubeTensor,
    inputs: Vec<(StepInput, Handle)>,
    graph: Graph,
}

impl CubeGraphs {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            recorded: Vec::new(),
            plans: Vec::new(),
            stats: StepGraphStats::default(),
            failure: None,
            is_failure_told: false,
        }
    }

    /// Whether it records at all.
    pub(super) fn is_able(&self) -> bool {
        self.failure.is_none()
    }

    pub(super) fn clear(&mut self) {
        self.recorded.clear();
    }

    pub(super) fn stats(&self) -> StepGraphStats {
        self.stats
    }

    pub(super) fn take_failure(&mut self) -> Option<String> {
        let is_told = std::mem::replace(&mut self.is_failure_told, self.failure.is_some());
        self.failure.clone().filter(|_| !is_told)
    }

    /// What `forward` computes of the batch: by a replay, or it is recorded now.
    pub(super) fn run(
        &mut self,
        token_ids: &[u32],
        meta: &AttentionMetadata,
        forward: Forward<'_>,
    ) -> Tensor<2> {
        let plans: Vec<Plan> = self.plans.iter().map(|of| of.plan(meta, None, true)).collect();
        let found = self.recorded.iter().position(|recorded| {
            let forms = recorded.forms.iter().eq(plans.iter().map(|plan| &plan.form));
            recorded.rows == token_ids.len() && forms
        });
        let done = match found {
            Some(at) => {
                let recorded = self.recorded.remove(at);
                let done = self.replay(&recorded, token_ids, meta, &plans);
                self.recorded.push(recorded);
                done
            }
            None => self.record(token_ids, meta, forward),
        };
        done.unwrap_or_else(|error| {
            self.recorded.clear();
            self.failure = Some(error.to_string());
            forward(token_ids, meta)
        })
    }

    fn replay(
        &mut self,
        recorded: &Recorded,
        token_ids: &[u32],
        meta: &AttentionMetadata,
        plans: &[Plan],
    ) -> Result<Tensor<2>, ServerError> {
        for (input, handle) in &recorded.inputs {
            // What the operations would check.
            if let StepInput::Plan(of) = input {
                of.check_slots(&meta.slot_mapping);
            }
            let numbers = match input {
                StepInput::TokenIds => token_ids,
                StepInput::Positions => &meta.positions,
                StepInput::Slots => &meta.slot_mapping,
                StepInput::Plan(of) => {
                    let mut known = self.plans.iter().zip(plans);
                    match known.find(|(known, _)| *known == of) {
                        Some((_, plan)) => &plan.words,
                        None => unreachable!("a step has the plans that the first one had"),
                    }
                }
            };
            self.client.write(handle, Bytes::from_elems(numbers.to_vec()));
        }
        let output = recorded.run()?;
        self.stats.replayed += 1;
        Ok(output)
    }

    fn record(
        &mut self,
        token_ids: &[u32],
        meta: &AttentionMetadata,
        forward: Forward<'_>,
    ) -> Result<Tensor<2>, ServerError> {
        // Memory for one more.
        self.recorded.drain(..(self.recorded.len() + 1).saturating_sub(KEPT));
        let client = &self.client;
        // On the device's own thread, memory is free as soon as a tensor is dropped: all runs find
        // the same, which the last must. Of exact size, as what a recording touches serves nothing
        // else, and else it would be large pages.
        let capture = || {
            client.memory_persistent_allocation((), |()| capture(client, token_ids, meta, forward))
        };
        let Captured { output, inputs, graph } = client.exclusive(capture)??;
        let plans: Vec<PlanOf> = inputs.iter().filter_map(|(input, _)| input.plan()).collect();
        if self.plans.is_empty() {
            self.plans = plans;
        } else if self.plans != plans {
            return Err(ServerError::graph_state("the step has other plans than the first had"));
        }
        let forms = self.plans.iter().map(|of| of.plan(meta, None, true).form).collect();
        let recorded = Recorded { rows: token_ids.len(), forms, inputs, output, graph };
        let output = recorded.run()?;
        self.recorded.push(recorded);
        self.stats.recorded += 1;
        Ok(output)
    }
}

/// Records a step. It is computed once for its kernels and inputs, again for the memory that it needs
/// beside inputs, and then launches are recorded and not done.
fn capture(
    client: &Client,
    token_ids: &[u32],
    meta: &AttentionMetadata,
    forward: Forward<'_>,
) -> Result<Captured, ServerError> {
    if client.is_capturing() {
        // By a thread that hung, and was given up.
        drop(client.stop_capture());
    }
    let recording = Recording::begin();
    let window = Window::prepare(client)?;
    for _ in 0..2 {
        drop(forward(token_ids, meta));
    }
    client.start_capture()?;
    let output = forward(token_ids, meta);
    let graph = window.close()?;
    match device_tensor(output) {
        Ok(output) => Ok(Captured { output, inputs: recording.end(), graph }),
        Err(_) => Err(ServerError::graph_state("the step was computed elsewhere")),
    }
}

impl Recorded {
    /// Computes the step of what the inputs hold.
    fn run(&self) -> Result<Tensor<2>, ServerError> {
        // SAFETY: the inputs and the output are held here, the memory in between by the graph; weights
        // and KV cache live as long as the `forward` that is asked for the next step. Who uses them
        // has the KV cache, and its queue, to itself.
        unsafe { self.graph.replay() }?;
        Ok(into_tensor(self.output.clone()))
    }
}

/// The time in which a queue records, which ends in any case.
struct Window<'a>(Option<&'a Client>);

impl<'a> Window<'a> {
    fn prepare(client: &'a Client) -> Result<Self, ServerError> {
        client.graph_prepare()?;
        Ok(Self(Some(client)))
    }

    fn close(mut self) -> Result<Graph, ServerError> {
        match self.0.take() {
            Some(client) => client.stop_capture(),
            None => unreachable!("a window is closed once"),
        }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            // The error or panic that led here is the one to tell.
            drop(client.stop_capture());
        }
    }
}

impl std::fmt::Debug for CubeGraphs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kept = self.recorded.len();
        f.debug_struct("CubeGraphs").field("kept", &kept).field("stats", &self.stats).finish()
    }
}
