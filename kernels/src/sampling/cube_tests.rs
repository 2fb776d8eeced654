//! On a GPU: vLLM's golden cases, and the host's tokens and log-probabilities.

use super::*;
use crate::cube::test_device::{numbers, tensor, test_device};

/// Returns the results of the device and of the host.
fn both(
    logits: &[f32],
    rows: &[SamplingRow<'_>],
) -> Option<[Vec<Result<Sampled, SampleError>>; 2]> {
    let device = test_device()?;
    let vocab = logits.len() / rows.len();
    let (mut on_device, mut on_host) = (Vec::new(), Vec::new());
    sample_tensor(tensor(logits, vocab, &device), rows, &mut on_device).unwrap();
    sample_rows(&mut logits.to_vec(), rows, &mut on_host);
    Some([on_device, on_host])
}

/// Returns the tokens that can come, from enough positions to see all of them.
fn kept(logits: &[f32], top_k: u32, top_p: f32, min_p: f32) -> Option<Vec<u32>> {
    const POSITIONS: usize = 400;
    let row = |position| SamplingRow { top_k, top_p, min_p, position, ..SamplingRow::default() };
    let rows: Vec<_> = (0..POSITIONS as u64).map(row).collect();
    let [on_device, on_host] = both(&logits.repeat(POSITIONS), &rows)?;
    let set = |sampled: Vec<Result<Sampled, SampleError>>| {
        let mut ids: Vec<_> = sampled.into_iter().map(|s| s.unwrap().token_id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let (on_device, on_host) = (set(on_device), set(on_host));
    assert_eq!(on_device, on_host);
    Some(on_device)
}

/// Logits, `top_k`, `top_p`, `min_p`, and the tokens that are kept.
type Golden<'a> = (&'a [f32], u32, f32, f32, &'a [u32]);

#[test]
fn golden_cases() {
    let logits = [1.0, 2.0, 3.0, 4.0];
    let cases: [Golden<'_>; 8] = [
        (&logits, 2, 1.0, 0.0, &[2, 3]),
        (&logits, 0, 0.5, 0.0, &[3]),
        (&logits, 0, 0.9, 0.0, &[1, 2, 3]),
        (&logits, 3, 0.9, 0.0, &[2, 3]),
        (&[1.0, 3.0, 3.0], 1, 1.0, 0.0, &[1, 2]),
        (&[0.0; 4], 0, 0.3, 0.0, &[0, 1]),
        (&[0.0; 4], 0, 0.6, 0.0, &[0, 1, 2]),
        (&[0.0; 4], 0, 1.0, 1.0, &[0, 1, 2, 3]),
    ];
    for (logits, top_k, top_p, min_p, expected) in cases {
        let Some(kept) = kept(logits, top_k, top_p, min_p) else { return };
        assert_eq!(kept, expected, "top_k {top_k}, top_p {top_p}, min_p {min_p}");
    }
}

/// Rows of every kind.
fn all_kinds(words: &[u32], bad_words: &[Vec<u32>]) -> Vec<SamplingRow<'static>> {
    let words: &'static [u32] = words.to_vec().leak();
    let bad_words: &'static [Vec<u32>] = bad_words.to_vec().leak();
    let plain = SamplingRow::default();
    let penalised = SamplingRow {
        prompt_token_ids: &[3, 3, 700],
        output_token_ids: &[5, 9, 5],
        repetition_penalty: 1.3,
        frequency_penalty: 0.4,
        presence_penalty: 0.2,
        ..plain.clone()
    };
    vec![
        SamplingRow { temperature: 0.0, ..plain.clone() },
        SamplingRow { seed: 7, position: 1 << 40, ..plain.clone() },
        SamplingRow { temperature: 0.3, seed: u64::MAX, ..plain.clone() },
        SamplingRow { top_k: 5, ..plain.clone() },
        SamplingRow { top_p: 0.4, temperature: 2.0, ..plain.clone() },
        SamplingRow { top_k: 90, top_p: 0.9, min_p: 0.1, ..plain.clone() },
        SamplingRow { num_logprobs: Some(3), logprob_token_ids: &[1, 4999], ..plain.clone() },
        SamplingRow { num_logprobs: Some(100), ..penalised.clone() },
        SamplingRow { temperature: 0.0, num_logprobs: Some(0), ..penalised },
        SamplingRow { allowed_token_ids: Some(&[8, 600, 9999]), ..plain.clone() },
        SamplingRow { token_bitmask: Some(words), num_logprobs: Some(1), ..plain.clone() },
        SamplingRow {
            token_bitmask: Some(words),
            allowed_token_ids: Some(&[2]),
            temperature: 0.0,
            ..plain.clone()
        },
        SamplingRow {
            logit_bias: &[(17, 50.0), (18, 49.0)],
            bad_words,
            output_token_ids: &[1],
            temperature: 0.0,
            ..plain.clone()
        },
        SamplingRow { min_tokens: 1, stop_token_ids: &[0], top_k: 1, ..plain },
    ]
}

/// Rows of every kind over a vocabulary that no power of two divides, and over one for which every
/// unit needs many passes.
#[test]
fn rows_of_every_kind_match_the_host_in_any_batch() {
    // The mask allows tokens 33 to 63.
    let rows = all_kinds(&[0, !1], &[vec![1, 17]]);
    for vocab in [1003, 20_011] {
        let logits: Vec<f32> = numbers(rows.len() * vocab, 3).iter().map(|x| x * 9.0).collect();
        let Some([on_device, on_host]) = both(&logits, &rows) else { return };
        for (i, (got, expected)) in on_device.iter().zip(&on_host).enumerate() {
            assert_same(got.as_ref().unwrap(), expected.as_ref().unwrap(), i);
        }
        for (i, together) in on_device.iter().enumerate() {
            let row = std::slice::from_ref(&rows[i]);
            let [alone, _] = both(&logits[i * vocab..(i + 1) * vocab], row).unwrap();
            assert_eq!(&alone[0], together, "row {i} alone");
        }
    }
}

fn assert_same(got: &Sampled, expected: &Sampled, row: usize) {
    assert_eq!(got.token_id, expected.token_id, "row {row}");
    let entries = |sampled: &Sampled| sampled.logprobs.clone().map(|row| row.entries);
    let (got, expected) = (entries(got), entries(expected));
    assert_eq!(got.as_ref().map(Vec::len), expected.as_ref().map(Vec::len), "row {row}");
    for (got, expected) in got.into_iter().flatten().zip(expected.into_iter().flatten()) {
        assert_eq!((got.0, got.2), (expected.0, expected.2), "row {row}");
        let is_near = got.1 == expected.1 || (got.1 - expected.1).abs() < 2e-5;
        assert!(is_near, "row {row}: {got:?}, {expected:?}");
    }
}

#[test]
fn non_finite_and_empty_rows_are_reported() {
    let nan = [1.0, f32::NAN, 3.0, f32::NAN];
    let infinite = [1.0, 2.0, 3.0, f32::INFINITY];
    let logits = [nan, infinite, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]].concat();
    let masked = SamplingRow { allowed_token_ids: Some(&[]), ..SamplingRow::default() };
    let rows = [SamplingRow::default(), SamplingRow::default(), masked, SamplingRow::default()];
    let Some([on_device, on_host]) = both(&logits, &rows) else { return };
    assert!(matches!(&on_device[0], Err(SampleError::NotFinite { token_id: 1, .. })));
    assert!(matches!(&on_device[1], Err(SampleError::NotFinite { token_id: 3, .. })));
    assert_eq!(on_device[..2], on_host[..2]);
    assert_eq!(on_device[2], Err(SampleError::NoCandidate));
    assert_eq!(on_device[3], on_host[3]);
}

#[test]
fn prompts_have_log_probabilities() {
    let Some(device) = test_device() else { return };
    const VOCAB: usize = 301;
    let logits: Vec<f32> = numbers(2 * VOCAB, 4).iter().map(|x| x * 5.0).collect();
    let wanted = [(7, 2), (300, 0)];
    let got = logprobs_tensor(tensor(&logits, VOCAB, &device), &wanted).unwrap();
    for (got, expected) in got.iter().zip(logprob_rows(&logits, &wanted)) {
        assert_eq!(got.entries.len(), expected.entries.len());
        for (got, expected) in got.entries.iter().zip(&expected.entries) {
            assert_eq!((got.0, got.2), (expected.0, expected.2));
            assert!((got.1 - expected.1).abs() < 1e-5);
        }
    }
}

/// Rows at the limits: zeros of both signs, masked logits, a `top_p` that rounds to zero, and more
/// tokens asked for than exist.
#[test]
fn edge_cases_match_the_host() {
    const MASK: f32 = f32::NEG_INFINITY;
    let plain = SamplingRow { num_logprobs: Some(20), ..SamplingRow::default() };
    let cases = [
        ([-0.0, -1.0, -2.0], SamplingRow { min_p: 1.0, ..plain.clone() }),
        ([0.0, -0.0, -1.0], SamplingRow { top_k: 1, position: 3, ..plain.clone() }),
        ([1.0, 0.9, 0.8], SamplingRow { top_p: 1e-8, ..plain.clone() }),
        ([1.0, MASK, 0.5], SamplingRow { top_k: 3, logprob_token_ids: &[1], ..plain.clone() }),
        ([MASK, MASK, 0.5], SamplingRow { top_k: 2, top_p: 0.5, ..plain.clone() }),
        ([3e30, 2.0, 1.0], SamplingRow { temperature: 1e-3, ..plain.clone() }),
        ([1.0, 2.0, 1.0], SamplingRow { logit_bias: &[(1, -9.0)], ..plain }),
    ];
    for (i, (logits, row)) in cases.iter().enumerate() {
        let Some([on_device, on_host]) = both(logits, std::slice::from_ref(row)) else { return };
        let (got, expected) = (on_device[0].as_ref().unwrap(), on_host[0].as_ref().unwrap());
        assert_same(got, expected, i);
    }
}

/// A thousand draws with the host's noise in float32 give the host's tokens, except for rare close
/// calls.
#[test]
fn the_noise_matches_the_host() {
    const ROWS: usize = 1000;
    const VOCAB: usize = 40;
    let logits: Vec<f32> = numbers(ROWS * VOCAB, 5);
    let row = |seed| SamplingRow { seed, position: 12, ..SamplingRow::default() };
    let rows: Vec<_> = (0..ROWS as u64).map(row).collect();
    let Some([on_device, on_host]) = both(&logits, &rows) else { return };
    let differ = on_device.iter().zip(&on_host).filter(|(a, b)| a != b).count();
    assert!(differ <= 1, "{differ} draws differ");
}
