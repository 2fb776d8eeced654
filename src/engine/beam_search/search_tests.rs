//! The search compared with a naive one, on models whose next token depends on all tokens before.

use super::*;

const VOCAB: u32 = 6;
const EOS: TokenId = 0;

/// Returns the log-probabilities of the vocabulary, `[VOCAB]`, which depend on all tokens before.
fn model(seed: u64, tokens: &[TokenId]) -> Vec<f32> {
    let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
    let mut mix = |value: u64| {
        state = (state ^ value).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state ^= state >> 29;
        state
    };
    for &token in tokens {
        mix(u64::from(token) + 1);
    }
    let logits: Vec<f64> =
        (0..VOCAB).map(|i| (mix(u64::from(i)) % 4_000) as f64 / 1_000.0).collect();
    let sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
    logits.iter().map(|logit| (logit - sum) as f32).collect()
}

fn likeliest(seed: u64, tokens: &[TokenId]) -> TokenLogprobs {
    let logprobs = model(seed, tokens);
    let mut row: TokenLogprobs = (0..VOCAB)
        .zip(logprobs)
        .map(|(token_id, logprob)| Logprob { token_id, logprob, rank: 0 })
        .collect();
    row.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
    row
}

fn params(beam_width: usize, max_tokens: usize, length_penalty: f64) -> SearchParams {
    SearchParams {
        beam_width,
        max_tokens,
        length_penalty,
        eos_token_ids: vec![EOS],
        include_stop_token: false,
        takes_whole_rows: false,
        num_logprobs: None,
    }
}

fn run(seed: u64, params: SearchParams) -> (Vec<(f64, Hypothesis)>, usize) {
    let mut search = BeamSearch::new(params);
    let mut steps = 0;
    while !search.is_done() {
        let next = search.live().iter().map(|beam| likeliest(seed, &beam.token_ids));
        let next: Vec<_> = next.collect();
        search.extend(&next);
        steps += 1;
    }
    (search.finish(), steps)
}

/// Searches as textbooks and vLLM do: takes all steps, keeps all ended beams, sorts them last.
fn naive(seed: u64, params: &SearchParams) -> Vec<(Vec<TokenId>, f64)> {
    let mut live = vec![(Vec::new(), 0.0_f64)];
    let mut ended = Vec::new();
    for _ in 0..params.max_tokens {
        let mut all = Vec::new();
        for (tokens, cum) in &live {
            for entry in likeliest(seed, tokens).iter().take(2 * params.beam_width) {
                let cum = cum + f64::from(entry.logprob);
                if params.eos_token_ids.contains(&entry.token_id) {
                    // The end is one of the generated tokens, as in vLLM 0.33 and transformers.
                    ended.push((tokens.clone(), cum, tokens.len() + 1));
                } else {
                    all.push(([tokens.as_slice(), &[entry.token_id]].concat(), cum));
                }
            }
        }
        all.sort_by(|a: &(Vec<u32>, f64), b| b.1.total_cmp(&a.1));
        all.truncate(params.beam_width);
        live = all;
    }
    ended.extend(live.into_iter().map(|(tokens, cum)| {
        let length = tokens.len();
        (tokens, cum, length)
    }));
    let scored = |(_, cum, length): &(Vec<u32>, f64, usize)| {
        cum / (*length as f64).powf(params.length_penalty)
    };
    ended.sort_by(|a, b| scored(b).total_cmp(&scored(a)));
    ended.truncate(params.beam_width);
    ended.iter().map(|beam| (beam.0.clone(), scored(beam))).collect()
}

#[test]
fn the_search_and_the_naive_search_find_the_same() {
    let mut saved = 0;
    for seed in 0..400 {
        for (width, penalty) in [(1, 1.0), (2, 0.0), (2, 1.0), (3, 2.5), (3, -1.0)] {
            let params = params(width, 7, penalty);
            let (found, steps) = run(seed, params.clone());
            let found: Vec<_> = found.iter().map(|(s, h)| (h.token_ids.clone(), *s)).collect();
            assert_eq!(found, naive(seed, &params), "seed {seed}, width {width}, {penalty}");
            saved += params.max_tokens - steps;
        }
    }
    assert!(saved > 500, "the search ends early where nothing better can come: {saved}");
}

#[test]
fn a_beam_for_every_sequence_finds_the_likeliest_of_all() {
    for seed in 0..50 {
        // No token ends a beam: 3 steps over 6 tokens make 216 outputs, as many as there are beams.
        let wide = SearchParams { eos_token_ids: Vec::new(), ..params(216, 3, 0.0) };
        let (found, _) = run(seed, wide);
        let mut best = (f64::NEG_INFINITY, Vec::new());
        for code in 0..VOCAB.pow(3) {
            let tokens = [code / 36, code / 6 % 6, code % 6];
            let steps = (0..3).map(|i| f64::from(model(seed, &tokens[..i])[tokens[i] as usize]));
            let total: f64 = steps.sum();
            if total > best.0 {
                best = (total, tokens.to_vec());
            }
        }
        assert_eq!(found.len(), 216);
        assert_eq!(found[0].1.token_ids, best.1);
        assert!((found[0].0 - best.0).abs() < 1e-9);
    }
}

#[test]
fn an_end_is_left_out_or_kept_and_scores_the_same() {
    let kept = |include_stop_token| {
        let params =
            SearchParams { include_stop_token, num_logprobs: Some(2), ..params(3, 7, 1.0) };
        run(11, params).0
    };
    let (without, with) = (kept(false), kept(true));
    let ended = without.iter().position(|(_, beam)| beam.ended_by.is_some()).unwrap();
    let ((score, bare), (same, whole)) = (&without[ended], &with[ended]);
    assert_eq!(score, same);
    assert_eq!(whole.text_token_ids(), bare.token_ids);
    assert_eq!(whole.token_ids.last(), Some(&EOS));
    assert_eq!(bare.finish_reason(), FinishReason::Stop(Some(StopReason::Token(EOS))));
    let rows = whole.tokens();
    let own: f64 = rows.iter().map(|t| f64::from(t.logprobs.as_ref().unwrap()[0].logprob)).sum();
    assert!((own - whole.cum_logprob).abs() < 1e-9, "each row begins with its own token");
    assert!(rows.iter().all(|token| token.logprobs.as_ref().unwrap().len() == 3));
}
