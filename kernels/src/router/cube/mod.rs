//! The router on a GPU, one cube a token. The choices stay on the device.
//!
//! Units share the experts. A number becomes an integer of the same order ([`rank`]), so that NaN
//! compares as on the CPU whatever a driver assumes. The best expert is found once for each place:
//! it is taken, and the next is the best of the others. The number of experts alone decides the
//! order of sums.

mod choose;
mod weigh;

use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::{ExpertGroups, GroupScore, Router, RouterConfig, Routing, Scoring};
use crate::cube::{Rows, cubes, words_buffer};
use choose::{Memory, close_groups, rank, take_best};
use weigh::{row_softmax, score, write_weights};

/// Most units of a cube.
const UNITS_MAX: usize = 256;

/// A [`RouterConfig`] without its factor, as the kernel takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    num_experts: usize,
    top_k: usize,
    scoring: Kind,
    renormalize: bool,
    /// 1 where there are no groups.
    num_groups: usize,
    num_chosen: usize,
    is_by_two: bool,
    has_bias: bool,
    has_scales: bool,
    units: usize,
}

/// The kind of [`Scoring`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Softmax,
    Sigmoid,
    SoftmaxOfChosen,
    SigmoidOfChosen,
    SparseMixer,
}

/// The numbers of a [`RouterConfig`] that weights depend on.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Factors {
    scale: f32,
    min_sum: f32,
    jitter: f32,
}

impl Form {
    fn of(router: &Router) -> Self {
        let RouterConfig { num_experts, top_k, scoring, renormalize, groups, .. } = router.config;
        let none = ExpertGroups { num_groups: 1, num_chosen: 1, by: GroupScore::Max };
        let ExpertGroups { num_groups, num_chosen, by } = groups.unwrap_or(none);
        Self {
            num_experts,
            top_k,
            scoring: match scoring {
                Scoring::Softmax => Kind::Softmax,
                Scoring::Sigmoid => Kind::Sigmoid,
                Scoring::SoftmaxOfChosen => Kind::SoftmaxOfChosen,
                Scoring::SigmoidOfChosen => Kind::SigmoidOfChosen,
                Scoring::SparseMixer => Kind::SparseMixer,
            },
            renormalize,
            num_groups,
            num_chosen,
            is_by_two: by == GroupScore::TopTwoSum,
            has_bias: router.correction_bias.is_some(),
            has_scales: router.expert_scales.is_some(),
            units: num_experts.next_power_of_two().min(UNITS_MAX),
        }
    }

    /// Returns the experts of a group.
    fn group_size(&self) -> usize {
        self.num_experts / self.num_groups
    }

    /// Returns whether experts are chosen by their scores.
    fn is_by_score(&self) -> bool {
        (self.has_bias || self.is_by_two) && self.scoring != Kind::SigmoidOfChosen
    }
}

/// Returns the most experts that a router on this device takes: its memory holds four words for
/// each, and some for each unit.
pub(crate) fn experts_max(client: &Client) -> usize {
    let bytes = client.properties().hardware.max_shared_memory_size;
    bytes.saturating_sub(4 * UNITS_MAX * size_of::<u32>()) / (4 * size_of::<u32>())
}

/// Chooses experts for rows of logits on a GPU.
pub(crate) fn route(logits: CubeTensor, router: &Router) -> Routing {
    let logits = Rows::new(logits);
    let (form, tokens) = (Form::of(router), logits.rows);
    let Form { num_experts, top_k, units, .. } = form;
    assert_eq!(logits.cols, num_experts, "route: width of logits [{tokens}, {}]", logits.cols);
    let client = logits.client();
    // No runtime has empty buffers.
    let choices = client.empty((tokens * top_k).max(1) * 2 * size_of::<u32>());
    if tokens > 0 {
        let bias = router.correction_bias.as_ref().map(|bias| words_buffer(bias.cube()));
        let scales = router.expert_scales.as_ref().map(|scales| words_buffer(scales.cube()));
        // SAFETY: a cube beyond the tokens does nothing. Logits, bias and scales are as wide as the
        // form says, and a token has `top_k` choices.
        unsafe {
            route_kernel::launch_unchecked(
                client,
                cubes(tokens),
                CubeDim::new_1d(units as u32),
                logits.arg(),
                bias.into(),
                scales.into(),
                words_buffer(&choices),
                tokens,
                logits.stride() * logits.lanes,
                FactorsLaunch::new(
                    router.config.scale,
                    router.config.min_sum,
                    router.config.jitter,
                ),
                form,
            );
        }
    }
    Routing::on_device(client.clone(), choices, tokens, top_k, num_experts)
}

#[cube(launch_unchecked)]
fn route_kernel(
    logits: &[f32],
    bias: ComptimeOption<&[f32]>,
    expert_scales: ComptimeOption<&[f32]>,
    choices: &mut [u32],
    tokens: usize,
    stride: usize,
    factors: Factors,
    #[comptime] form: Form,
) {
    let token = CUBE_POS;
    if token >= tokens {
        terminate!();
    }
    let (experts, top_k, units) = comptime!((form.num_experts, form.top_k, form.units));
    let unit = UNIT_POS as usize;
    let row = token * stride;
    let mut memory = Memory::new(form);
    let softmax = row_softmax(logits, row, form);
    let mut e = unit;
    while e < experts {
        let mut key = logits[row + e];
        if comptime!(form.is_by_score()) {
            key = score(key, &softmax, form);
        }
        let of_bias: ComptimeOption<f32> = bias.map(|bias| bias[e]);
        key += of_bias.unwrap_or_else(|| 0.0f32.runtime());
        memory.ranks[e] = rank(key);
        e += units;
    }
    sync_cube();
    if comptime!(form.num_chosen < form.num_groups) {
        close_groups(&mut memory, form);
    }
    for place in 0..top_k {
        let expert = take_best(&mut memory, false, experts, units);
        if unit == 0 {
            memory.chosen[place] = expert;
        }
        sync_cube();
    }
    write_weights(logits, row, &mut memory, &softmax, choices, token * top_k, &factors, form);
    if comptime!(form.has_scales) {
        // A unit scales the weights that it wrote.
        let mut place = unit;
        while place < top_k {
            let expert = memory.chosen[place] as usize;
            let of_scale: ComptimeOption<f32> = expert_scales.map(|scales| scales[expert]);
            let at = 2 * (token * top_k + place) + 1;
            let weight = f32::reinterpret(choices[at]);
            choices[at] = u32::reinterpret(weight * of_scale.unwrap_or_else(|| 1.0f32.runtime()));
            place += units;
        }
    }
}
