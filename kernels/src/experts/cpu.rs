//! The experts on the CPU: tokens are gathered by expert, multiplied, and summed in the order of
//! their choices.

use std::cell::Cell;

use burn_flex::FlexTensor;

use super::activation::activate;
use super::lora::{ExpertSegment, changed, segments};
use super::plan::Plan;
use super::{ExpertActivation, Experts};
use crate::activation::cpu::activated as activate_alone;
use crate::linear::groups::grouped;
use crate::lora::cpu::add as add_lora;
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{give_back, tensor};
use crate::{Activation, Choice, LoraSegment, Routing};

thread_local! {
    /// The last plan, kept so that the next one reuses its memory.
    static PLAN: Cell<Plan> = Cell::default();
}

/// Computes the weighted sum of each token's experts on CPU tensors.
pub(crate) fn experts(x: FlexTensor, routing: &Routing, experts: &Experts) -> FlexTensor {
    experts_with_lora(x, routing, experts, &[])
}

/// Computes the same with the adapters of some tokens.
pub(crate) fn experts_with_lora(
    x: FlexTensor,
    routing: &Routing,
    experts: &Experts,
    segments: &[ExpertSegment<'_>],
) -> FlexTensor {
    let [tokens, width] = dims2(&x);
    assert_eq!(width, experts.hidden, "experts: width of x [{tokens}, {width}]");
    assert_eq!(routing.num_tokens(), tokens, "experts: tokens of the routing");
    let all = experts.num_experts() + experts.num_identities;
    assert_eq!(routing.num_experts(), all, "experts: experts of the routing");
    let x = dense(x);
    let mut y = tensor(tokens, width);
    mixture(Isa::active(), values(&x), (routing, segments), experts, values_mut(&mut y));
    give_back(x);
    y
}

/// Computes the same on one instruction set, into y, which has the shape of x.
pub(super) fn mixture(
    isa: Isa,
    x: &[f32],
    (routing, adapters): (&Routing, &[ExpertSegment<'_>]),
    experts: &Experts,
    y: &mut [f32],
) {
    if y.is_empty() {
        return;
    }
    let mut plan = PLAN.take();
    plan.sort(routing, experts.num_experts);
    let (rows, hidden) = (plan.choices.len(), experts.hidden);
    // The rows' inputs, and later their results.
    let mut gathered = tensor(rows, hidden);
    // A batch may choose identities alone.
    if rows > 0 {
        products(isa, x, (routing, adapters), experts, &plan, &mut gathered);
    }
    let results = values(&gathered);
    for_each_rows(y, hidden, |first, y| {
        isa.run(Combine { x, results, routing, experts, plan: &plan, first, y });
    });
    give_back(gathered);
    PLAN.set(plan);
}

/// Replaces the rows of a plan, `[rows, hidden]`, by the results of their experts.
fn products(
    isa: Isa,
    x: &[f32],
    (routing, adapters): (&Routing, &[ExpertSegment<'_>]),
    experts: &Experts,
    plan: &Plan,
    gathered: &mut FlexTensor,
) {
    let hidden = experts.hidden;
    let inputs = values_mut(gathered);
    for_each_rows(inputs, hidden, |first, rows| gather(x, routing, experts, plan, first, rows));
    let changed = changed(plan, routing, experts.num_experts, adapters);
    let activated = activated(isa, inputs, plan, experts, &segments(&changed, 0));
    grouped(isa, values(&activated), &plan.down(experts), false, values_mut(gathered));
    add(isa, values_mut(gathered), values(&activated), &segments(&changed, 1));
    give_back(activated);
}

/// Copies the inputs of the rows from `first` on, scaled where experts want that.
fn gather(
    x: &[f32],
    routing: &Routing,
    experts: &Experts,
    plan: &Plan,
    first: usize,
    rows: &mut [f32],
) {
    let hidden = experts.hidden;
    for (row, choice) in rows.chunks_exact_mut(hidden).zip(&plan.choices[first..]) {
        let choice = *choice as usize;
        let x = &x[choice / routing.top_k() * hidden..][..hidden];
        if experts.scale_input {
            let weight = routing.choices()[choice].weight;
            for (row, x) in row.iter_mut().zip(x) {
                *row = weight * x;
            }
        } else {
            row.copy_from_slice(x);
        }
    }
}

/// Returns the activations between the two products, `[rows, intermediate]`.
fn activated(
    isa: Isa,
    x: &[f32],
    plan: &Plan,
    experts: &Experts,
    adapters: &[LoraSegment<'_>],
) -> FlexTensor {
    let (rows, inter) = (plan.choices.len(), experts.intermediate);
    let mut activated = tensor(rows, inter);
    let groups = plan.gate_up(experts);
    let is_silu = experts.activation == ExpertActivation::Gated(Activation::Silu);
    if is_silu && adapters.is_empty() && groups.can_gate(isa) {
        grouped(isa, x, &groups, true, values_mut(&mut activated));
        return activated;
    }
    if let ExpertActivation::Plain(activation) = experts.activation {
        grouped(isa, x, &groups, false, values_mut(&mut activated));
        add(isa, values_mut(&mut activated), x, adapters);
        activate_alone(isa, values_mut(&mut activated), inter, activation);
        return activated;
    }
    let mut gate_up = tensor(rows, 2 * inter);
    grouped(isa, x, &groups, false, values_mut(&mut gate_up));
    add(isa, values_mut(&mut gate_up), x, adapters);
    let out = values_mut(&mut activated);
    activate(isa, experts.activation, values(&gate_up), inter, out);
    give_back(gate_up);
    activated
}

/// Adds the products of adapters to rows y of inputs x.
fn add(isa: Isa, y: &mut [f32], x: &[f32], adapters: &[LoraSegment<'_>]) {
    if !adapters.is_empty() {
        add_lora(isa, y, x, adapters);
    }
}

/// The task of summing the results of some tokens.
struct Combine<'a> {
    /// `[num_tokens, hidden]`
    x: &'a [f32],
    /// `[rows, hidden]`
    results: &'a [f32],
    routing: &'a Routing,
    experts: &'a Experts,
    plan: &'a Plan,
    /// The first of the tokens.
    first: usize,
    y: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { x, results, routing, experts, plan, first, y } = self;
        let (hidden, top_k) = (experts.hidden, routing.top_k());
        let choices = routing.choices().chunks_exact(top_k).zip(plan.rows.chunks_exact(top_k));
        let x = x.chunks_exact(hidden).skip(first);
        let tokens = y.chunks_exact_mut(hidden).zip(x).zip(choices.skip(first));
        for ((y, x), (choices, rows)) in tokens {
            y.fill(0.0);
            for (Choice { weight, .. }, row) in choices.iter().zip(rows) {
                let weight = if experts.scale_input { 1.0 } else { *weight };
                let result = match *row {
                    Plan::NO_ROW => x,
                    row => &results[row as usize * hidden..][..hidden],
                };
                for (y, result) in y.iter_mut().zip(result) {
                    *y += weight * result;
                }
            }
        }
    }
}
