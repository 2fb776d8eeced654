//! Exactly the poisoned requests are convicted.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_actors::logic::{recovery::poison::Ward, request::ids::RequestId};
use proptest::prelude::*;

/// A request: its number of tokens, and the token at which the model panics.
#[derive(Debug, Clone, Copy)]
struct Life {
    num_tokens: usize,
    poisoned_at: Option<usize>,
}

#[derive(Debug, Default)]
struct Outcome {
    convicted: BTreeSet<u64>,
    served: BTreeSet<u64>,
    /// Number of panics that each request caused, perhaps with others.
    panics: BTreeMap<u64, u32>,
}

/// Runs an engine. Each step computes one token for at most `max_num_seqs` requests that may run.
/// After `patience` failures in a row the engine checks whether the device works, as the breaker's
/// canary does. With `resumes`, the first step after a failure has only requests with an output, if
/// one of them may run.
fn run(lives: &[Life], max_num_seqs: usize, patience: Option<u32>, resumes: bool) -> Outcome {
    let mut live: BTreeMap<u64, (Life, usize)> = BTreeMap::new();
    for (id, &life) in (0..).zip(lives) {
        live.insert(id, (life, 0));
    }
    let (mut ward, mut outcome) = (Ward::new(), Outcome::default());
    let (mut num_steps, mut has_failed) = (0, false);
    while !live.is_empty() {
        num_steps += 1;
        assert!(num_steps < 20_000, "a request is tried for ever");
        let may_run = |id: &u64| ward.cohort().is_none_or(|group| group.contains(&RequestId(*id)));
        let all: Vec<u64> = live.keys().copied().filter(may_run).collect();
        let has_begun = |id: &u64| live[id].1 > 0;
        let goes_on = resumes && has_failed && all.iter().any(has_begun);
        let batch = all.into_iter().filter(|id| !goes_on || has_begun(id));
        let batch: Vec<u64> = batch.take(max_num_seqs).collect();
        assert!(!batch.is_empty(), "the cohort is never empty");
        let panics = |id: &u64| live[id].0.poisoned_at == Some(live[id].1);
        has_failed = batch.iter().any(panics);
        if has_failed {
            let culprits = batch.iter().filter(|id| panics(id));
            culprits.for_each(|&id| *outcome.panics.entry(id).or_default() += 1);
            let ids: Vec<RequestId> = batch.iter().map(|&id| RequestId(id)).collect();
            for convict in ward.step_failed(&ids, live.len(), true) {
                live.remove(&convict.0);
                outcome.convicted.insert(convict.0);
            }
            if patience.is_some_and(|patience| ward.consecutive_failures() >= patience) {
                ward.step_succeeded();
            }
            continue;
        }
        ward.step_succeeded();
        for id in batch {
            ward.clear(RequestId(id));
            let (life, num_done) = live.get_mut(&id).unwrap();
            *num_done += 1;
            if *num_done == life.num_tokens {
                live.remove(&id);
                outcome.served.insert(id);
            }
        }
    }
    assert_eq!((ward.num_suspects(), ward.cohort()), (0, None));
    outcome
}

fn life() -> impl Strategy<Value = Life> {
    (1..6usize, prop::option::weighted(0.3, 0..5usize)).prop_map(|(num_tokens, poisoned_at)| {
        let poisoned_at = poisoned_at.filter(|&token| token < num_tokens);
        Life { num_tokens, poisoned_at }
    })
}

fn log2(n: usize) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_poisoned_are_convicted(
        lives in prop::collection::vec(life(), 1..40),
        max_num_seqs in 1..50usize,
        patience in prop::option::of(3..8u32),
        resumes in any::<bool>(),
    ) {
        let outcome = run(&lives, max_num_seqs, patience, resumes);
        for (id, life) in (0..).zip(&lives) {
            prop_assert_eq!(outcome.convicted.contains(&id), life.poisoned_at.is_some());
            prop_assert_eq!(outcome.served.contains(&id), life.poisoned_at.is_none());
        }
    }

    /// If an innocent request is in the batch, a poisoned one panics once with the whole batch. It
    /// panics once for each halving, and three times alone.
    #[test]
    fn a_conviction_costs_few_panics(
        mut lives in prop::collection::vec(life(), 1..40),
        resumes in any::<bool>(),
    ) {
        // The innocent request outlives the others.
        lives.push(Life { num_tokens: 100, poisoned_at: None });
        let outcome = run(&lives, usize::MAX, None, resumes);
        for id in &outcome.convicted {
            let num_panics = outcome.panics[id];
            prop_assert!(num_panics <= log2(lives.len()) + 4, "{num_panics} panics of {id}");
        }
    }
}
