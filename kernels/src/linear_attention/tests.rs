//! Comparisons with the reference.

use burn::tensor::Device;
use proptest::prelude::*;

use super::kimi::{KimiTokens, kimi};
use super::*;
use crate::simd::Isa;
use crate::states::fixture::{in_steps, noise};

/// Numbers of the state of another part of the layer.
pub(super) const OTHER: usize = 3;

fn rule(heads: LinearHeads, seed: usize) -> GatedDeltaRule {
    rule_on(heads, seed, &Device::flex())
}

pub(super) fn rule_on(heads: LinearHeads, seed: usize, device: &Device) -> GatedDeltaRule {
    let a_log = noise(heads.num_heads, seed).iter().map(|x| 3.0 * x - 2.0).collect();
    let dt_bias = noise(heads.num_heads, seed + 1);
    let beta_max = if seed.is_multiple_of(2) { 2.0 } else { 1.0 };
    let rule = GatedDeltaRule::new(heads, a_log, dt_bias, OTHER, device).unwrap();
    rule.with_beta_max(beta_max)
}

/// Returns the inputs of the tokens of a sequence: q, k and v, and gates up to ±3.
pub(super) fn inputs(heads: LinearHeads, len: usize, seed: usize) -> [Vec<f32>; 2] {
    let gates = noise(len * 2 * heads.num_heads, seed + 3);
    let gates = gates.iter().map(|x| 3.0 * x).collect();
    [noise(len * heads.inputs(), seed + 2), gates]
}

/// Computes sequences of the gated delta rule in steps of so many tokens.
fn in_steps_by_delta_rule<const N: usize>(
    isa: Isa,
    rule: &GatedDeltaRule,
    seeds: [usize; N],
    lens: [usize; N],
    steps: &[usize],
) -> [Vec<f32>; N] {
    let heads = rule.heads;
    let all: Vec<_> = seeds.iter().zip(lens).map(|(seed, len)| inputs(heads, len, *seed)).collect();
    let state_len = OTHER + heads.state_len();
    in_steps(state_len, lens, steps, heads.outputs(), |layer, meta, tokens, y| {
        let (mut qkv, mut gates) = (Vec::new(), Vec::new());
        for (seq, position) in tokens {
            let [of_qkv, of_gates] = &all[*seq];
            let widths = [heads.inputs(), 2 * heads.num_heads];
            qkv.extend_from_slice(&of_qkv[position * widths[0]..][..widths[0]]);
            gates.extend_from_slice(&of_gates[position * widths[1]..][..widths[1]]);
        }
        cpu::delta(isa, rule, (&mut qkv, &gates), layer, meta, y);
    })
}

/// Computes a sequence of Kimi's delta rule in steps of so many tokens.
fn in_steps_by_kimi(
    isa: Isa,
    rule: &KimiDeltaRule,
    [qkv, gates, b]: &[Vec<f32>; 3],
    steps: &[usize],
) -> Vec<f32> {
    let heads = rule.heads();
    let state_len = OTHER + heads.state_len();
    let len = b.len() / heads.num_heads;
    let widths = [heads.inputs(), heads.num_heads * heads.key_dim, heads.num_heads];
    let [y] = in_steps(state_len, [len], steps, heads.outputs(), |layer, meta, tokens, y| {
        let rows = |values: &[f32], width: usize| -> Vec<f32> {
            let row = |(_, position): &(usize, usize)| values[position * width..][..width].to_vec();
            tokens.iter().flat_map(row).collect()
        };
        let (mut qkv, mut gates) = (rows(qkv, widths[0]), rows(gates, widths[1]));
        let b = rows(b, widths[2]);
        let inputs = KimiTokens { qkv: &mut qkv, gates: &mut gates, b: &b };
        kimi(isa, rule, inputs, layer, meta, y);
    });
    y
}

/// Computes sequences of lightning attention in steps of so many tokens.
fn in_steps_by_lightning<const N: usize>(
    isa: Isa,
    attention: &LightningAttention,
    qkv: &[Vec<f32>; N],
    steps: &[usize],
) -> [Vec<f32>; N] {
    let heads = attention.heads;
    let lens = std::array::from_fn(|seq| qkv[seq].len() / heads.inputs());
    let state_len = OTHER + heads.state_len();
    in_steps(state_len, lens, steps, heads.outputs(), |layer, meta, tokens, y| {
        let row = |(seq, position): &(usize, usize)| {
            qkv[*seq][position * heads.inputs()..][..heads.inputs()].to_vec()
        };
        let rows: Vec<f32> = tokens.iter().flat_map(row).collect();
        cpu::lightning(isa, attention, &rows, layer, meta, y);
    })
}

fn check(isa: Isa, y: &[f32], exact: &[f64]) -> Result<(), TestCaseError> {
    let size = exact.iter().fold(0.0_f64, |most, y| most.max(y.abs()));
    prop_assert_eq!(y.len(), exact.len());
    for (y, exact) in y.iter().zip(exact) {
        let error = (f64::from(*y) - exact).abs();
        prop_assert!(error < 1e-5 * (size + 1e-3), "{}: {y} {exact}", isa.name());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_delta_rule_agrees_with_the_reference_in_steps_of_any_size(
        num_key_heads in 1usize..4,
        repeats in 1usize..4,
        key_dim in 1usize..40,
        value_dim in 1usize..90,
        lens in prop::array::uniform2(1usize..40),
        steps in prop::collection::vec(1usize..20, 1..4),
        seed in 0usize..1_000,
    ) {
        let num_heads = num_key_heads * repeats;
        let rule = rule(LinearHeads { num_key_heads, num_heads, key_dim, value_dim }, seed);
        let seeds = [seed + 10, seed + 20];
        for isa in Isa::available() {
            let results = in_steps_by_delta_rule(isa, &rule, seeds, lens, &steps);
            for (seq, y) in results.iter().enumerate() {
                let [qkv, gates] = inputs(rule.heads, lens[seq], seeds[seq]);
                check(isa, y, &reference::gated_delta_rule(&rule, &qkv, &gates))?;
            }
        }
    }

    #[test]
    fn kimis_rule_agrees_with_the_reference_in_steps_of_any_size(
        num_heads in 1usize..4,
        key_dim in 1usize..40,
        value_dim in 1usize..90,
        bound in -5.0f32..0.0,
        len in 1usize..40,
        steps in prop::collection::vec(1usize..20, 1..4),
        seed in 0usize..1_000,
    ) {
        let heads = LinearHeads { num_key_heads: num_heads, num_heads, key_dim, value_dim };
        let rows = num_heads * key_dim;
        let a_log: Vec<f32> = noise(num_heads, seed).iter().map(|x| 2.0 * x - 1.0).collect();
        let tokens = [len * heads.inputs(), len * rows, len * num_heads].map(|n| noise(n, seed + n));
        for decay in [KimiDecay::Softplus, KimiDecay::Bounded(bound)] {
            let bias = noise(rows, seed + 1);
            let rule = KimiDeltaRule::new(heads, &a_log, bias, decay, OTHER, &Device::flex());
            let rule = rule.unwrap();
            let [qkv, gates, b] = &tokens;
            let exact = reference::kimi_delta_rule(&rule, qkv, gates, b);
            for isa in Isa::available() {
                let y = in_steps_by_kimi(isa, &rule, &tokens, &steps);
                check(isa, &y, &exact)?;
                let whole = in_steps_by_kimi(isa, &rule, &tokens, &[len]);
                let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&y), bits(&whole));
            }
        }
    }

    #[test]
    fn lightning_attention_agrees_with_the_reference_in_steps_of_any_size(
        head_dim in 1usize..80,
        slope in 0.0f32..2.0,
        lens in prop::array::uniform2(1usize..40),
        steps in prop::collection::vec(1usize..20, 1..4),
        seed in 0usize..1_000,
    ) {
        let slopes = [slope, slope * 0.1, 0.01];
        let attention =
            LightningAttention::new(head_dim, &slopes, OTHER, &Device::flex()).unwrap();
        let width = attention.heads.inputs();
        let qkv = lens.map(|len| noise(len * width, seed + len));
        for isa in Isa::available() {
            let results = in_steps_by_lightning(isa, &attention, &qkv, &steps);
            for (y, qkv) in results.iter().zip(&qkv) {
                check(isa, y, &reference::lightning_attention(head_dim, qkv, &slopes))?;
            }
        }
    }
}

/// Enough work for several threads.
#[test]
fn the_bytes_of_a_token_do_not_depend_on_its_batch_or_chunk() {
    let heads = LinearHeads { num_key_heads: 2, num_heads: 4, key_dim: 32, value_dim: 100 };
    let rule = rule(heads, 5);
    for isa in Isa::available() {
        let [alone] = in_steps_by_delta_rule(isa, &rule, [7], [60], &[60]);
        for steps in [&[1][..], &[16], &[7, 1, 30]] {
            let all = in_steps_by_delta_rule(isa, &rule, [1, 7, 2], [33, 60, 9], steps);
            let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&all[1]), bits(&alone), "{} in steps of {steps:?}", isa.name());
        }
    }
}

#[test]
fn heads_and_weights_must_fit() {
    let device = Device::flex();
    let heads = LinearHeads { num_key_heads: 3, num_heads: 4, key_dim: 2, value_dim: 2 };
    let four = || vec![0.0; 4];
    let error = GatedDeltaRule::new(heads, four(), four(), 0, &device).unwrap_err();
    assert!(error.to_string().contains("num_key_heads"), "{error}");
    let heads = LinearHeads { num_key_heads: 2, ..heads };
    let error = GatedDeltaRule::new(heads, four(), vec![0.0; 2], 0, &device).unwrap_err();
    assert!(error.to_string().contains("dt_bias"), "{error}");
    assert!(LightningAttention::new(0, &[1.0], 0, &device).is_err());
    assert!(LightningAttention::new(4, &[], 0, &device).is_err());
}
