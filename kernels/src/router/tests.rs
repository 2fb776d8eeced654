//! Comparisons with the reference, ties, and the parameters that are refused.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;

/// Returns reproducible values in (-1, 1).
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn config(num_experts: usize, top_k: usize, scoring: Scoring) -> RouterConfig {
    RouterConfig {
        num_experts,
        top_k,
        scoring,
        renormalize: false,
        min_sum: RouterConfig::MIN_SUM,
        jitter: 0.1,
        groups: None,
        scale: 1.0,
    }
}

fn router(config: RouterConfig, bias: Option<&[f32]>) -> Router {
    let bias = bias.map(|bias| WeightVector::new(bias.to_vec(), &Device::flex()).unwrap());
    Router::new(config, bias).unwrap()
}

fn run(isa: Isa, logits: &[f32], router: &Router) -> Vec<Choice> {
    let tokens = logits.len() / router.config.num_experts;
    let unset = Choice { expert: u32::MAX, weight: f32::NAN };
    let mut choices = vec![unset; tokens * router.config.top_k];
    cpu::choose(isa, logits, router, &mut choices);
    choices
}

fn check(logits: &[f32], config: RouterConfig, bias: Option<&[f32]>) {
    let router = router(config, bias);
    for isa in Isa::available() {
        let choices = run(isa, logits, &router);
        let rows = logits.chunks_exact(config.num_experts).zip(choices.chunks_exact(config.top_k));
        for (logits, choices) in rows {
            if reference::least_gap(logits, &config, bias) < 1e-6 {
                continue;
            }
            let exact = reference::route(logits, &config, bias);
            for (choice, (expert, weight)) in choices.iter().zip(exact) {
                let name = isa.name();
                assert_eq!(choice.expert as usize, expert, "{name} {config:?}");
                let error = (f64::from(choice.weight) - weight).abs();
                assert!(error <= 1e-5 * weight.abs() + 1e-30, "{name} {config:?}: {error}");
            }
        }
    }
}

const SCORINGS: [Scoring; 5] = [
    Scoring::Softmax,
    Scoring::Sigmoid,
    Scoring::SoftmaxOfChosen,
    Scoring::SigmoidOfChosen,
    Scoring::SparseMixer,
];

fn any_scoring() -> impl Strategy<Value = Scoring> {
    prop::sample::select(SCORINGS.to_vec())
}

proptest! {
    #[test]
    fn any_router_agrees_with_the_reference(
        num_experts in 1usize..70,
        k in 1usize..12,
        tokens in 0usize..6,
        scoring in any_scoring(),
        renormalize: bool,
        min_sum in prop::sample::select(vec![RouterConfig::MIN_SUM, 0.3]),
        has_bias: bool,
        spread in 0.1f32..12.0,
        scale in 0.5f32..3.0,
        seed: u32,
    ) {
        let top_k = k.min(num_experts);
        let config =
            RouterConfig { renormalize, scale, min_sum, ..config(num_experts, top_k, scoring) };
        let logits: Vec<f32> =
            values(tokens * num_experts, seed).iter().map(|x| x * spread).collect();
        let bias = has_bias.then(|| values(num_experts, 7));
        check(&logits, config, bias.as_deref());
    }

    #[test]
    fn any_groups_agree_with_the_reference(
        num_groups in 1usize..9,
        size in 2usize..20,
        chosen in 1usize..9,
        k in 1usize..9,
        is_v3: bool,
        seed: u32,
    ) {
        let num_chosen = chosen.min(num_groups);
        let (by, scoring) = match is_v3 {
            true => (GroupScore::TopTwoSum, Scoring::Sigmoid),
            false => (GroupScore::Max, Scoring::Softmax),
        };
        let config = RouterConfig {
            groups: Some(ExpertGroups { num_groups, num_chosen, by }),
            renormalize: is_v3,
            scale: 2.5,
            ..config(num_groups * size, k.min(num_chosen * size), scoring)
        };
        let logits: Vec<f32> =
            values(3 * num_groups * size, seed).iter().map(|x| 4.0 * x).collect();
        let bias = is_v3.then(|| values(num_groups * size, 3));
        check(&logits, config, bias.as_deref());
    }
}

#[test]
fn a_row_does_not_see_its_batch() {
    let (experts, tokens) = (60, 2000);
    let logits = values(experts * tokens, 1);
    for scoring in SCORINGS {
        let router =
            router(RouterConfig { renormalize: true, ..config(experts, 5, scoring) }, None);
        for isa in Isa::available() {
            let alone: Vec<Choice> =
                logits.chunks_exact(experts).flat_map(|row| run(isa, row, &router)).collect();
            assert_eq!(run(isa, &logits, &router), alone, "{} {scoring:?}", isa.name());
        }
    }
}

#[test]
fn the_bias_chooses_and_does_not_weigh() {
    let router = router(config(3, 1, Scoring::Sigmoid), Some(&[0.0, 0.0, 2.0]));
    for isa in Isa::available() {
        let [choice] = run(isa, &[5.0, 4.0, 0.0], &router)[..] else { unreachable!() };
        assert_eq!(choice, Choice { expert: 2, weight: 0.5 }, "{}", isa.name());
    }
}

/// Scores with the bias would choose the other expert: the logistic function of 6 and of 3 is near
/// 1, and the bias is larger than the distance of scores.
#[test]
fn the_bias_of_logits_is_added_before_the_logistic_function() {
    let of = |scoring| router(config(2, 1, scoring), Some(&[0.0, 1.0]));
    let (of_scores, of_logits) = (of(Scoring::Sigmoid), of(Scoring::SigmoidOfChosen));
    for isa in Isa::available() {
        let [choice] = run(isa, &[6.0, 3.0], &of_scores)[..] else { unreachable!() };
        assert_eq!(choice.expert, 1, "{}", isa.name());
        let [choice] = run(isa, &[6.0, 3.0], &of_logits)[..] else { unreachable!() };
        assert_eq!(choice.expert, 0, "{}", isa.name());
        let weight = 1.0 / (1.0 + (-6.0_f32).exp());
        assert!((choice.weight - weight).abs() < 1e-6, "{choice:?}");
    }
}

#[test]
fn weights_have_the_factors_of_their_experts() {
    let config = RouterConfig { renormalize: true, ..config(4, 2, Scoring::Softmax) };
    let logits = values(4 * 9, 3);
    let factors = [0.5, 3.0, -2.0, 0.0];
    let vector = |values: &[f32]| WeightVector::new(values.to_vec(), &Device::flex()).unwrap();
    let scaled = router(config, None).with_expert_scales(vector(&factors)).unwrap();
    let plain = router(config, None);
    for isa in Isa::available() {
        for (a, b) in run(isa, &logits, &scaled).iter().zip(run(isa, &logits, &plain)) {
            assert_eq!((a.expert, a.weight), (b.expert, b.weight * factors[b.expert as usize]));
        }
    }
    let error = router(config, None).with_expert_scales(vector(&[1.0])).unwrap_err();
    assert!(error.to_string().contains("expert_scales"), "{error}");
}

/// Scores of 1 hide which logit is larger.
#[test]
fn saturated_experts_are_chosen_by_their_logits() {
    let router = router(config(4, 2, Scoring::Sigmoid), None);
    for isa in Isa::available() {
        let choices = run(isa, &[30.0, 60.0, 20.0, 60.0], &router);
        let experts: Vec<u32> = choices.iter().map(|choice| choice.expert).collect();
        assert_eq!(experts, [1, 3], "{}", isa.name());
        assert!(choices.iter().all(|choice| choice.weight == 1.0));
    }
}

#[test]
fn a_softmax_of_the_chosen_is_a_renormalized_one() {
    let logits: Vec<f32> = values(8, 5).iter().map(|x| x * 6.0).collect();
    let chosen = router(config(8, 3, Scoring::SoftmaxOfChosen), None);
    let all = RouterConfig { renormalize: true, ..config(8, 3, Scoring::Softmax) };
    let all = router(all, None);
    for isa in Isa::available() {
        for (a, b) in run(isa, &logits, &chosen).iter().zip(run(isa, &logits, &all)) {
            assert_eq!(a.expert, b.expert);
            assert!((a.weight - b.weight).abs() < 1e-6, "{a:?} {b:?}");
        }
    }
}

/// The numbers are those of HF `sparsemixer`.
#[test]
fn a_sparse_mixer_weighs_each_expert_among_those_near_it() {
    let router = router(config(4, 2, Scoring::SparseMixer), None);
    for isa in Isa::available() {
        // 1.7 is near 2, but no logit is near 1.7 beside 2, which is taken.
        let choices = run(isa, &[1.0, 2.0, 1.7, -3.0], &router);
        assert_eq!((choices[0].expert, choices[1].expert), (1, 2), "{}", isa.name());
        let first = 1.0 / (1.0 + (-0.3_f32).exp());
        assert!((choices[0].weight - first).abs() < 1e-6, "{choices:?}");
        assert!((choices[1].weight - 1.0).abs() < 1e-6, "{choices:?}");
    }
}

#[test]
fn what_is_no_number_reaches_the_weights() {
    for scoring in SCORINGS {
        let router = router(RouterConfig { renormalize: true, ..config(20, 2, scoring) }, None);
        let mut logits = vec![1.0; 20];
        logits[17] = f32::NAN;
        for isa in Isa::available() {
            let choices = run(isa, &logits, &router);
            assert_eq!(choices[0].expert, 17);
            assert!(choices[0].weight.is_nan(), "{} {scoring:?}", isa.name());
            let all_nan = run(isa, &[f32::NAN; 20], &router);
            assert_eq!((all_nan[0].expert, all_nan[1].expert), (0, 1));
        }
    }
}

#[test]
fn the_operation_returns_the_choices_of_each_token() {
    let device = Device::flex();
    let logits = TensorData::new(vec![0.0f32, 1.0, 2.0, 2.0, 0.0, 0.0], [2, 3]);
    let router = router(config(3, 2, Scoring::SoftmaxOfChosen), None);
    let routing = route(Tensor::from_data(logits, &device), &router);
    assert_eq!((routing.num_tokens(), routing.top_k(), routing.num_experts()), (2, 2, 3));
    let experts: Vec<u32> = routing.to_host().unwrap().iter().map(|c| c.expert).collect();
    assert_eq!(experts, [2, 1, 0, 1]);
    let none = route(Tensor::<2>::zeros([0, 3], &device), &router);
    assert!(none.choices().is_empty());
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let refused = |config: RouterConfig, field: &str| {
        let error = Router::new(config, None).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    };
    let valid = config(8, 2, Scoring::Softmax);
    refused(RouterConfig { num_experts: 0, ..valid }, "num_experts");
    refused(RouterConfig { top_k: 0, ..valid }, "top_k");
    refused(RouterConfig { top_k: 9, ..valid }, "top_k");
    let groups = |num_groups, num_chosen, by| RouterConfig {
        groups: Some(ExpertGroups { num_groups, num_chosen, by }),
        top_k: 5,
        ..valid
    };
    refused(groups(0, 1, GroupScore::Max), "num_groups");
    refused(groups(3, 1, GroupScore::Max), "num_groups");
    refused(groups(8, 8, GroupScore::TopTwoSum), "num_groups");
    refused(groups(4, 2, GroupScore::Max), "num_chosen");
    refused(groups(4, 5, GroupScore::Max), "num_chosen");
    assert!(Router::new(groups(4, 3, GroupScore::TopTwoSum), None).is_ok());
    let bias = WeightVector::new(vec![0.0; 7], &Device::flex()).unwrap();
    assert!(Router::new(valid, Some(bias)).unwrap_err().to_string().contains("correction_bias"));
    let choice = |expert| Choice { expert, weight: 1.0 };
    assert!(Routing::new(&[choice(1), choice(0)], 2, 2).is_ok());
    for choices in [&[choice(1)][..], &[choice(0), choice(2)]] {
        assert!(Routing::new(choices, 2, 2).is_err());
    }
    assert!(Routing::new(&[], 0, 2).is_err());
}
