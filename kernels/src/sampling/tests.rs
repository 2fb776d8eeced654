//! vLLM's golden cases, and the distribution of the draw.

use proptest::prelude::*;

use super::*;

/// Returns the tokens that can come: those of 2,000 positions of one seed.
fn support(logits: &[f32], row: &SamplingRow<'_>) -> Vec<u32> {
    let mut scratch = SamplingScratch::default();
    let mut seen: Vec<u32> = (0..2000)
        .map(|position| {
            let row = SamplingRow { position, ..row.clone() };
            sample(&mut logits.to_vec(), &row, &mut scratch).unwrap().token_id
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

/// Returns the tokens that can come. Ids are those of vLLM's tests, which name tokens by their
/// logit.
fn kept(logits: &[f32], top_k: u32, top_p: f32, min_p: f32) -> Vec<u32> {
    support(logits, &SamplingRow { top_k, top_p, min_p, ..SamplingRow::default() })
}

#[test]
fn top_k_top_p_golden_cases() {
    let logits = [1.0, 2.0, 3.0, 4.0];
    assert_eq!(kept(&logits, 2, 1.0, 0.0), [2, 3]);
    assert_eq!(kept(&logits, 0, 0.5, 0.0), [3]);
    assert_eq!(kept(&logits, 0, 0.9, 0.0), [1, 2, 3]);
    assert_eq!(kept(&logits, 3, 0.9, 0.0), [2, 3]);
    assert_eq!(kept(&[1.0, 3.0, 3.0], 1, 1.0, 0.0), [1, 2]);
    assert_eq!(kept(&[0.0; 4], 0, 0.3, 0.0).len(), 2);
    assert_eq!(kept(&[0.0; 4], 0, 0.6, 0.0).len(), 3);
}

#[test]
fn min_p_masks_all_but_a_dominant_token() {
    let mut logits = vec![0.0; 20];
    logits[7] = 10.0;
    assert_eq!(kept(&logits, 0, 1.0, 0.1), [7]);
    assert_eq!(kept(&[0.0; 4], 0, 1.0, 1.0), [0, 1, 2, 3]);
}

#[test]
fn greedy_takes_the_lowest_of_tied_tokens_and_ignores_truncation() {
    let row = SamplingRow { temperature: 0.0, ..SamplingRow::default() };
    assert_eq!(support(&[1.0, 3.0, 3.0], &row), [1]);
}

#[test]
fn greedy_sees_masks_biases_and_penalties() {
    let row = SamplingRow {
        temperature: 0.0,
        logit_bias: &[(0, 5.0)],
        output_token_ids: &[0],
        presence_penalty: 2.0,
        ..SamplingRow::default()
    };
    assert_eq!(support(&[1.0, 3.0, 3.5], &row), [0]);
    let row = SamplingRow { presence_penalty: 2.6, ..row };
    assert_eq!(support(&[1.0, 3.0, 3.5], &row), [2]);
}

#[test]
fn logprobs_are_those_of_the_unmodified_row() {
    let row = SamplingRow {
        temperature: 0.5,
        logit_bias: &[(2, 50.0)],
        num_logprobs: Some(1),
        ..SamplingRow::default()
    };
    let raw = [1.0, 2.0, 0.0, 4.0];
    let sampled = sample(&mut raw.to_vec(), &row, &mut SamplingScratch::default()).unwrap();
    assert_eq!(sampled.token_id, 2);
    assert_eq!(sampled.logprobs, Some(logprob_row(&raw, 2, 1, &[])));
}

#[test]
fn garbage_is_an_error() {
    let mut scratch = SamplingScratch::default();
    let row = SamplingRow::default();
    let nan = sample(&mut [0.0, f32::NAN], &row, &mut scratch);
    assert!(matches!(nan, Err(SampleError::NotFinite { token_id: 1, .. })));
    let inf = sample(&mut [f32::INFINITY, 0.0], &row, &mut scratch);
    assert!(matches!(inf, Err(SampleError::NotFinite { token_id: 0, .. })));
    let none = SamplingRow { allowed_token_ids: Some(&[9]), ..row };
    assert_eq!(sample(&mut [0.0, 1.0], &none, &mut scratch), Err(SampleError::NoCandidate));
}

/// Returns Pearson's statistic of draws from `logits` at many positions, for `softmax(expected)`.
fn chi_square(logits: &[f32], temperature: f32, seed: u64, expected: &[f64]) -> f64 {
    const DRAWS: u64 = 40_000;
    let mut scratch = SamplingScratch::default();
    let mut counts = vec![0.0; logits.len()];
    for position in 0..DRAWS {
        let row = SamplingRow { temperature, seed, position, ..SamplingRow::default() };
        let sampled = sample(&mut logits.to_vec(), &row, &mut scratch).unwrap();
        counts[sampled.token_id as usize] += 1.0;
    }
    let total: f64 = expected.iter().map(|l| l.exp()).sum();
    let expected = expected.iter().map(|l| l.exp() / total * DRAWS as f64);
    counts.iter().zip(expected).map(|(c, e)| (c - e) * (c - e) / e).sum()
}

#[test]
fn the_draw_follows_the_softmax() {
    let logits = [0.3, -1.0, 1.7, 0.0, 2.0, -0.5, 1.0, 0.9];
    let scaled = |by: f64| logits.map(|l| f64::from(l) * by);
    for seed in 0..4 {
        // With 7 degrees of freedom, a fair draw exceeds 24.3 once in a thousand.
        let statistic = chi_square(&logits, 0.8, seed, &scaled(1.25));
        assert!(statistic < 24.3, "seed {seed}: {statistic}");
        // The test can distinguish a temperature of 0.8 from one of 0.85.
        let wrong = chi_square(&logits, 0.8, seed, &scaled(1.0 / 0.85));
        assert!(wrong > 24.3, "seed {seed}: {wrong}");
    }
}

proptest! {
    #[test]
    fn a_token_depends_on_seed_and_position_alone(
        logits in prop::collection::vec(-4.0f32..4.0, 2..200),
        seed: u64,
        position: u64,
    ) {
        let row = SamplingRow { seed, position, ..SamplingRow::default() };
        let fresh = sample(&mut logits.clone(), &row, &mut SamplingScratch::default()).unwrap();
        let mut used = SamplingScratch::default();
        let other = SamplingRow { top_k: 1, seed: seed ^ 1, ..row.clone() };
        sample(&mut logits.clone(), &other, &mut used).unwrap();
        prop_assert_eq!(&fresh, &sample(&mut logits.clone(), &row, &mut used).unwrap());
        // A wide enough truncation changes nothing.
        let wide = SamplingRow { min_p: 1e-30, ..row };
        prop_assert_eq!(fresh, sample(&mut logits.clone(), &wide, &mut used).unwrap());
    }

    #[test]
    fn truncation_keeps_the_tokens_that_a_sort_would(
        logits in prop::collection::vec((-12i8..12).prop_map(|x| f32::from(x) / 4.0), 1..300),
        top_k in 0u32..40,
        top_p in 0.05f32..1.0,
    ) {
        let row = SamplingRow { top_k, top_p, ..SamplingRow::default() };
        let mut scratch = SamplingScratch::default();
        let best = select::scan(&logits).best.unwrap();
        let mut ours: Vec<u32> = truncate::apply(&logits, &row, best, &mut scratch)
            .map_or_else(|| (0..logits.len() as u32).collect(), |kept| kept.iter().map(|k| k.1).collect());
        ours.sort_unstable();
        prop_assert_eq!(ours, naive_truncation(&logits, top_k as usize, top_p));
    }
}

/// Applies vLLM's rule as written: sort ascending, mask below the k-th, mask where the running sum
/// of probabilities is at most `1 - p`.
fn naive_truncation(logits: &[f32], top_k: usize, top_p: f32) -> Vec<u32> {
    let mut pairs: Vec<(f32, u32)> = logits.iter().copied().zip(0..).collect();
    pairs.sort_by(|a, b| select::by_rank(b, a));
    if top_k > 0 && top_k < pairs.len() {
        let kth = pairs[pairs.len() - top_k].0;
        pairs.retain(|(l, _)| *l >= kth);
    }
    let max = pairs[pairs.len() - 1].0;
    let total: f64 = pairs.iter().map(|(l, _)| f64::from((l - max).exp())).sum();
    let mut running = 0.0;
    let mut ids: Vec<u32> = Vec::new();
    for (l, id) in &pairs {
        running += f64::from((l - max).exp()) / total;
        // Sums in the two directions differ by less than one part in 10^12.
        if running > f64::from(1.0 - top_p) + 1e-12
            || ids.is_empty() && *id == pairs[pairs.len() - 1].1
        {
            ids.push(*id);
        }
    }
    ids.sort_unstable();
    ids
}

/// Samples one row in the order of the module's documentation, by sorting and straight loops.
fn naive(raw: &[f32], row: &SamplingRow<'_>) -> Result<u32, ()> {
    if raw.iter().any(|l| l.is_nan() || *l == f32::INFINITY) {
        return Err(());
    }
    let mut logits = raw.to_vec();
    for (id, logit) in logits.iter_mut().enumerate() {
        if row.allowed_token_ids.is_some_and(|allowed| !allowed.contains(&(id as u32))) {
            *logit = f32::NEG_INFINITY;
        }
        let biases = row.logit_bias.iter().filter(|(biased, _)| *biased as usize == id);
        *logit += biases.map(|(_, bias)| bias).sum::<f32>();
        let times = |ids: &[u32]| ids.iter().filter(|other| **other as usize == id).count();
        let in_output = times(row.output_token_ids);
        if in_output + times(row.prompt_token_ids) > 0 {
            *logit = match *logit > 0.0 {
                true => *logit / row.repetition_penalty,
                false => *logit * row.repetition_penalty,
            };
        }
        if in_output > 0 {
            *logit -= row.frequency_penalty * in_output as f32;
            *logit -= row.presence_penalty;
        }
    }
    let first = |ids: &[u32], logits: &[f32]| {
        let mut sorted: Vec<(f32, u32)> =
            ids.iter().map(|id| (logits[*id as usize], *id)).collect();
        sorted.sort_by(select::by_rank);
        sorted.first().copied()
    };
    let all: Vec<u32> = (0..raw.len() as u32).collect();
    let (max, best) = first(&all, &logits).filter(|(l, _)| *l > f32::NEG_INFINITY).ok_or(())?;
    if row.is_greedy() {
        // −0 and 0 are tied.
        let is_best = |id: &&u32| logits[**id as usize] == max;
        return Ok(all.iter().find(is_best).copied().unwrap_or(best));
    }
    logits.iter_mut().for_each(|logit| *logit /= row.temperature);
    let floor = max / row.temperature + row.min_p.ln();
    let left: Vec<u32> = all.into_iter().filter(|id| logits[*id as usize] >= floor).collect();
    let of_left: Vec<f32> = left.iter().map(|id| logits[*id as usize]).collect();
    let kept = naive_truncation(&of_left, row.top_k as usize, row.top_p);
    let noisy = kept.iter().map(|at| left[*at as usize]);
    let noisy = noisy.filter(|id| logits[*id as usize] > f32::NEG_INFINITY);
    let scores = noisy.map(|id| (draw::score(logits[id as usize], id, row), id));
    let drawn = scores.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    drawn.map(|(_, id)| id).ok_or(())
}

/// Returns rows of few distinct values, so that ties are common, with −∞ and sometimes NaN or +∞.
fn any_row() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        60 => (-16i8..16).prop_map(|x| f32::from(x) / 4.0),
        4 => Just(f32::NEG_INFINITY),
    ];
    let garbage =
        prop_oneof![9 => Just(None), 1 => any::<(prop::sample::Index, bool)>().prop_map(Some)];
    (prop::collection::vec(logit, 1..700), garbage).prop_map(|(mut row, garbage)| {
        if let Some((place, is_nan)) = garbage {
            let place = place.index(row.len());
            row[place] = if is_nan { f32::NAN } else { f32::INFINITY };
        }
        row
    })
}

proptest! {
    #[test]
    fn rows_together_give_the_tokens_of_sorting_each_alone(
        raw in prop::collection::vec(any_row(), 1..6),
        temperature in prop_oneof![Just(0.0f32), Just(1.0), 0.25f32..2.0],
        top_k in prop_oneof![Just(0u32), 1u32..50],
        top_p in prop_oneof![Just(1.0f32), 0.05f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.001f32..0.5],
        penalties in prop_oneof![Just((1.0f32, 0.0f32, 0.0f32)), Just((1.5, 0.25, 0.5))],
        logit_bias in prop::collection::vec((0u32..700, (-8i8..8).prop_map(f32::from)), 0..2),
        tokens in prop::collection::vec(0u32..700, 0..20),
        is_restricted in any::<bool>(),
        seed: u64,
    ) {
        let vocab = raw.iter().map(Vec::len).min().unwrap_or(0);
        let mut logits: Vec<f32> = raw.iter().flat_map(|row| &row[..vocab]).copied().collect();
        let allowed: Vec<u32> = tokens.iter().map(|id| id / 2).collect();
        let rows: Vec<SamplingRow<'_>> = (0..raw.len() as u64).map(|position| SamplingRow {
            temperature, top_k, top_p, min_p, seed, position,
            repetition_penalty: penalties.0,
            frequency_penalty: penalties.1,
            presence_penalty: penalties.2,
            logit_bias: &logit_bias,
            prompt_token_ids: &tokens,
            output_token_ids: &tokens[tokens.len() / 2..],
            allowed_token_ids: is_restricted.then_some(&allowed),
            ..SamplingRow::default()
        }).collect();
        let mut sampled = vec![Err(SampleError::NoCandidate); 3];
        sample_rows(&mut logits, &rows, &mut sampled);
        for ((sampled, row), raw) in sampled.iter().zip(&rows).zip(&raw) {
            let token = sampled.as_ref().map(|sampled| sampled.token_id).map_err(drop);
            prop_assert_eq!(token, naive(&raw[..vocab], row));
        }
    }
}
