//! On a GPU: agreement with the references, whatever the steps are.

use super::tests::{OTHER, inputs, rule_on};
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values};
use crate::states::fixture::{in_steps_on, noise};

/// Computes two sequences of the gated delta rule in steps of so many tokens.
fn by_delta_rule(
    device: &Device,
    rule: &GatedDeltaRule,
    seqs: &[[Vec<f32>; 2]; 2],
    steps: &[usize],
) -> [Vec<f32>; 2] {
    let heads = rule.heads;
    let lens = [0, 1].map(|seq| seqs[seq][0].len() / heads.inputs());
    let state_len = OTHER + heads.state_len();
    in_steps_on(device, state_len, lens, steps, heads.outputs(), |layer, meta, tokens, y| {
        let rows = |part: usize, width: usize| {
            let row = |(seq, position): &(usize, usize)| {
                seqs[*seq][part][position * width..][..width].to_vec()
            };
            tensor(&tokens.iter().flat_map(row).collect::<Vec<f32>>(), width, device)
        };
        let (qkv, gates) = (rows(0, heads.inputs()), rows(1, 2 * heads.num_heads));
        y.copy_from_slice(&values(gated_delta_rule(qkv, gates, rule, layer, meta)));
    })
}

/// Returns a bound of errors relative to the largest number.
fn bound(exact: &[f64]) -> f64 {
    5e-5 * (exact.iter().fold(0.0_f64, |most, y| most.max(y.abs())) + 1e-3)
}

#[test]
fn the_delta_rule_agrees_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (num_key_heads, repeats, key_dim, value_dim, steps) in [
        (1, 1, 1, 1, &[3][..]),
        (2, 2, 20, 33, &[1]),
        (1, 2, 128, 128, &[7, 1, 2]),
        (3, 1, 5, 90, &[100]),
    ] {
        let num_heads = num_key_heads * repeats;
        let heads = LinearHeads { num_key_heads, num_heads, key_dim, value_dim };
        let (rule, on_cpu) = (rule_on(heads, 5, &device), rule_on(heads, 5, &Device::flex()));
        let seqs = [inputs(heads, 19, 10), inputs(heads, 6, 20)];
        let y = by_delta_rule(&device, &rule, &seqs, steps);
        for ([qkv, gates], y) in seqs.iter().zip(y) {
            let exact = reference::gated_delta_rule(&on_cpu, qkv, gates);
            assert_near(&y, &exact, bound(&exact), &format!("{heads:?}"));
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let Some(device) = test_device() else { return };
    let heads = LinearHeads { num_key_heads: 2, num_heads: 4, key_dim: 32, value_dim: 100 };
    let rule = rule_on(heads, 5, &device);
    let seqs = [inputs(heads, 37, 10), inputs(heads, 20, 20)];
    let run = |steps: &[usize]| by_delta_rule(&device, &rule, &seqs, steps).map(|y| bits(&y));
    let whole = run(&[1_000]);
    for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
        assert!(run(steps) == whole, "{steps:?}");
    }
}

#[test]
fn lightning_attention_agrees_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (head_dim, steps) in [(1, &[3][..]), (40, &[1]), (96, &[7, 1, 2]), (128, &[100])] {
        let slopes = [0.7, 0.07, 0.01];
        let attention = LightningAttention::new(head_dim, &slopes, OTHER, &device).unwrap();
        let heads = attention.heads;
        let width = heads.inputs();
        let qkv = [noise(19 * width, 3), noise(6 * width, 4)];
        let state_len = OTHER + heads.state_len();
        let outputs = heads.outputs();
        let y =
            in_steps_on(&device, state_len, [19, 6], steps, outputs, |layer, meta, tokens, y| {
                let row = |(seq, position): &(usize, usize)| {
                    qkv[*seq][position * width..][..width].to_vec()
                };
                let rows: Vec<f32> = tokens.iter().flat_map(row).collect();
                let rows = tensor(&rows, width, &device);
                y.copy_from_slice(&values(lightning_attention(rows, &attention, layer, meta)));
            });
        for (y, qkv) in y.iter().zip(&qkv) {
            let exact = reference::lightning_attention(head_dim, qkv, &slopes);
            assert_near(y, &exact, bound(&exact), &format!("heads of {head_dim}"));
        }
    }
}
