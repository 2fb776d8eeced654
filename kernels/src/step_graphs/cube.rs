//! Recordings through CubeCL: a CUDA graph, or on wgpu the launches with their lookups done.

use std::collections::BTreeSet;

use burn::tensor::Tensor;
use cubecl::client::Client;
use cubecl::server::ServerError;

use super::StepGraphStats;
use super::capture::capture;
use super::kept::Kept;
use super::recorded::Recorded;
use crate::cube::{caller_numbers, device_error, weight_copies};
use crate::paged_attention::cube::{Plan, PlanForm, PlanOf};
use crate::states::cube::StatesOf;
use crate::{AttentionMetadata, KernelError};

pub(super) type Forward<'a> = &'a mut (dyn FnMut(&[u32], &[AttentionMetadata]) -> Tensor<2> + Send);

/// Divisor of the recordings' limit: one recording may use this part of it for weights laid out
/// anew. Every recording needs the same bytes for them, whatever its rows.
const COPIES_PART: u64 = 16;

/// The failure of a model whose steps need more than their inputs.
const OTHER_NUMBERS: &str = "an operation reads numbers that a replay could not renew";

/// The recordings on one device.
pub(super) struct CubeGraphs {
    client: Client,
    kept: Kept<(Form, Recorded)>,
    /// Forms whose recordings hold more than the limit, or more than the device had.
    too_large: Vec<Form>,
    /// Numbers of rows whose products lay out too many bytes of weights anew.
    copying: BTreeSet<usize>,
    /// The plans of a step, the same in every step.
    plans: Vec<PlanOf>,
    /// The kinds of layers with states, the same in every step.
    states: Vec<StatesOf>,
    stats: StepGraphStats,
    /// The reason why no more steps are recorded.
    failure: Option<String>,
    is_failure_told: bool,
}

/// The properties that all steps of one recording share.
#[derive(Debug, Clone, PartialEq)]
struct Form {
    rows: usize,
    /// Plans in the order of [`CubeGraphs::plans`].
    plans: Vec<PlanForm>,
}

impl CubeGraphs {
    /// Makes an empty set of recordings, which may hold at most `bytes_max` bytes together.
    pub(super) fn new(client: Client, bytes_max: u64) -> Self {
        Self {
            client,
            kept: Kept::new(bytes_max),
            too_large: Vec::new(),
            copying: BTreeSet::new(),
            plans: Vec::new(),
            states: Vec::new(),
            stats: StepGraphStats::default(),
            failure: None,
            is_failure_told: false,
        }
    }

    /// Returns whether it records steps of `rows` rows at all.
    pub(super) fn takes(&self, rows: usize) -> bool {
        self.failure.is_none() && !self.copying.contains(&rows)
    }

    /// Drops all recordings. Steps that found no memory are tried again, because there may be more
    /// now.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.too_large.clear();
    }

    pub(super) fn stats(&self) -> StepGraphStats {
        StepGraphStats { kept: self.kept.len(), bytes: self.kept.bytes(), ..self.stats }
    }

    pub(super) fn take_failure(&mut self) -> Option<String> {
        let is_told = std::mem::replace(&mut self.is_failure_told, self.failure.is_some());
        self.failure.clone().filter(|_| !is_told)
    }

    /// Returns the result of `forward` for the batch, by a replay or while recording it.
    pub(super) fn run(
        &mut self,
        token_ids: &[u32],
        metas: &[AttentionMetadata],
        forward: Forward<'_>,
    ) -> Tensor<2> {
        let plans: Vec<Plan> = self.plans.iter().map(|of| plan(of, metas)).collect();
        let form =
            Form { rows: token_ids.len(), plans: plans.iter().map(|plan| plan.form).collect() };
        if self.too_large.contains(&form) || !is_one_launch(&self.states, metas) {
            return forward(token_ids, metas);
        }
        let Some((_, recorded)) = self.kept.find(|(kept, _)| *kept == form) else {
            return self.record(token_ids, metas, form, forward);
        };
        match recorded.replay(&self.client, token_ids, metas, &self.plans, &plans) {
            Ok(hidden) => {
                self.stats.replayed += 1;
                hidden
            }
            Err(error) => {
                // A state may have passed these tokens already, and must not pass them twice. The
                // step fails, and its requests go on from their snapshots.
                assert!(self.states.is_empty(), "a replay over states failed: {error}");
                self.note_failure(error, form);
                forward(token_ids, metas)
            }
        }
    }

    /// Notes why a step was not recorded or replayed, and drops all recordings.
    fn note_failure(&mut self, error: ServerError, form: Form) {
        self.kept.clear();
        let told = error.to_string();
        match device_error(error) {
            // The step may have enough memory without a recording, and other steps may be smaller.
            KernelError::Device { is_out_of_memory: true, .. } => {
                self.give_back();
                self.too_large.push(form);
            }
            _ => self.failure = Some(told),
        }
    }

    /// Computes a step, then records it if possible.
    fn record(
        &mut self,
        token_ids: &[u32],
        metas: &[AttentionMetadata],
        form: Form,
        forward: Forward<'_>,
    ) -> Tensor<2> {
        let rows = token_ids.len();
        // This run gives the result, because states pass the step's tokens only once. It uses the
        // memory that all steps share. It compiles kernels and measures products, which is
        // impossible while launches are recorded.
        let step = || caller_numbers::noted(|| forward(token_ids, metas));
        let ((hidden, has_other_numbers), copies) = weight_copies::noted(step);
        if has_other_numbers {
            self.failure = Some(OTHER_NUMBERS.to_owned());
            return hidden;
        }
        if copies > self.kept.bytes_max() / COPIES_PART {
            self.copying.insert(rows);
            return hidden;
        }
        if let Err(error) = self.capture(token_ids, metas, forward) {
            self.note_failure(error, form);
        }
        hidden
    }

    /// Records a step that was computed.
    fn capture(
        &mut self,
        token_ids: &[u32],
        metas: &[AttentionMetadata],
        forward: Forward<'_>,
    ) -> Result<(), ServerError> {
        let rows = token_ids.len();
        self.make_room(self.expected_bytes(rows));
        let elsewhere = into_block_0(metas);
        let (recorded, bytes) = capture(&self.client, token_ids, &elsewhere, forward)?;
        let inputs = recorded.inputs.iter();
        let plans: Vec<PlanOf> = inputs.clone().filter_map(|(input, _)| input.plan()).collect();
        self.states = inputs.filter_map(|(input, _)| input.states()).collect();
        if !is_one_launch(&self.states, metas) {
            return Ok(());
        }
        if self.plans.is_empty() {
            self.plans = plans;
        } else if self.plans != plans {
            return Err(ServerError::graph_state("the step has other plans than the first had"));
        }
        let plans = self.plans.iter().map(|of| plan(of, metas).form).collect();
        let form = Form { rows, plans };
        if bytes > self.kept.bytes_max() {
            self.too_large.push(form);
            drop(recorded);
            self.give_back();
            return Ok(());
        }
        self.make_room(bytes);
        self.kept.push((form, recorded), bytes);
        self.stats.recorded += 1;
        Ok(())
    }

    /// Returns about how many bytes a recording of `rows` rows will hold: as many a row as the
    /// largest.
    fn expected_bytes(&self, rows: usize) -> u64 {
        let largest = self.kept.iter().max_by_key(|(_, bytes)| *bytes);
        largest.map_or(0, |((form, _), bytes)| {
            (bytes / form.rows.max(1) as u64).saturating_mul(rows as u64)
        })
    }

    /// Drops the least recently used recordings until `bytes` more bytes may be held.
    fn make_room(&mut self, bytes: u64) {
        if self.kept.make_room(bytes) {
            self.give_back();
        }
    }

    /// Returns freed memory to the driver. It has exact sizes, which hardly any other code could
    /// use.
    fn give_back(&self) {
        // On failure the memory stays, for the next recording of the same size.
        drop(self.client.memory_cleanup());
    }
}

/// Returns a batch of the same form whose tokens all lie in block 0. The runs of a recording
/// compute it, so that they change no content.
fn into_block_0(metas: &[AttentionMetadata]) -> Vec<AttentionMetadata> {
    let mut metas = metas.to_vec();
    for AttentionMetadata { block_tables, slot_mapping, .. } in &mut metas {
        block_tables.iter_mut().for_each(|table| table.fill(0));
        slot_mapping.fill(0);
    }
    metas
}

/// Returns whether all sequences of a step can take their states at once. Where one reads a state
/// that another writes in the same step, the launches depend on the batch.
fn is_one_launch(states: &[StatesOf], metas: &[AttentionMetadata]) -> bool {
    states.iter().all(|of| of.plan(&metas[of.group()]).waves.len() == 1)
}

/// Returns the plan of a recorded step for layers of one kind and group.
fn plan(of: &PlanOf, metas: &[AttentionMetadata]) -> Plan {
    of.plan(&metas[of.group()], None, true)
}

impl std::fmt::Debug for CubeGraphs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CubeGraphs").field("stats", &self.stats()).finish()
    }
}
