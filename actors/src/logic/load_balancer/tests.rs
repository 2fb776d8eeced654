//! The load balancer, beside a naive one that compares whole prompts.

use proptest::prelude::*;

use super::{
    Candidate, LEAD_MAX, LoadBalancer,
    prefixes::{CHUNK_LEN, CHUNKS_MAX, Prefixes, keys},
};
use crate::logic::request::{
    EngineRequest,
    ids::{EngineIndex, TokenId},
    lora::{AdapterFingerprint, LoraRequest},
};

/// Returns a request whose prompt has these chunks, each of one token again and again.
fn request(chunks: &[TokenId]) -> EngineRequest {
    let tokens = chunks.iter().flat_map(|token| [*token; CHUNK_LEN]);
    EngineRequest::for_test(1, tokens.collect::<Vec<_>>())
}

fn candidates(loads: &[usize]) -> Vec<Candidate> {
    let candidate = |(index, load): (usize, &usize)| Candidate {
        engine: EngineIndex(index),
        num_requests: *load,
    };
    loads.iter().enumerate().map(candidate).collect()
}

fn give(balancer: &mut LoadBalancer, chunks: &[TokenId], loads: &[usize]) -> usize {
    balancer.give(&request(chunks), &mut candidates(loads)).unwrap().0
}

#[test]
fn without_a_shared_prefix_the_fewest_requests_decide_and_then_the_order() {
    let mut balancer = LoadBalancer::new(3);
    assert_eq!(give(&mut balancer, &[1], &[2, 1, 1]), 1);
    assert_eq!(give(&mut balancer, &[2], &[0, 0, 0]), 0);
    assert_eq!(give(&mut balancer, &[], &[3, 2, 1]), 2);
}

#[test]
fn the_longest_prefix_decides_within_the_bound() {
    let mut balancer = LoadBalancer::new(2);
    assert_eq!(give(&mut balancer, &[1, 2, 3], &[1, 0]), 1);
    assert_eq!(give(&mut balancer, &[1, 2, 9], &[0, LEAD_MAX]), 1);
    assert_eq!(give(&mut balancer, &[1, 2, 3, 4], &[0, LEAD_MAX + 1]), 0, "its queue is longer");
    assert_eq!(give(&mut balancer, &[1, 2, 3, 4], &[3, 1]), 0, "now this one has more of it");
}

#[test]
fn a_lost_cache_is_forgotten() {
    let mut balancer = LoadBalancer::new(2);
    assert_eq!(give(&mut balancer, &[1], &[1, 0]), 1);
    assert_eq!(give(&mut balancer, &[1], &[0, 1]), 1);
    balancer.forget(EngineIndex(1));
    assert_eq!(give(&mut balancer, &[1], &[0, 1]), 0);
}

#[test]
fn only_candidates_get_requests() {
    let mut balancer = LoadBalancer::new(3);
    assert_eq!(balancer.give(&request(&[1]), &mut []), None);
    let mut one = [Candidate { engine: EngineIndex(2), num_requests: 90 }];
    assert_eq!(balancer.give(&request(&[1]), &mut one), Some(EngineIndex(2)));
    assert_eq!(one[0].num_requests, 91, "the next one sees the request");
}

#[test]
fn salts_and_adapters_keep_prefixes_apart() {
    let plain = request(&[1, 2]);
    let salted = EngineRequest { cache_salt: Some("salt".into()), ..request(&[1, 2]) };
    let adapter = |byte| LoraRequest {
        fingerprint: AdapterFingerprint([byte; 32]),
        ..LoraRequest::for_test("a")
    };
    let adapted = |byte| EngineRequest { lora: Some(adapter(byte).into()), ..request(&[1, 2]) };
    let all = [plain, salted, adapted(1), adapted(2)].map(|request| keys(&request));
    for (index, own) in all.iter().enumerate() {
        assert_eq!(own.len(), 2);
        assert!(all[..index].iter().all(|other| other[0] != own[0] && other[1] != own[1]));
    }
}

#[test]
fn the_memory_of_prefixes_is_bounded_and_forgets_the_oldest() {
    let mut prefixes = Prefixes::default();
    let mine: Vec<u64> = (0..10).collect();
    prefixes.add(&mine);
    let others: Vec<u64> = (100..100 + CHUNKS_MAX as u64 - 4).collect();
    prefixes.add(&others);
    assert_eq!(prefixes.len(), CHUNKS_MAX);
    assert_eq!(prefixes.num_shared(&mine), 4, "the later chunks are forgotten first");
    prefixes.add(&mine[..4]);
    prefixes.add(&[7]);
    assert_eq!(prefixes.num_shared(&mine), 4, "a use makes them young again");
    assert_eq!(prefixes.len(), CHUNKS_MAX);
}

/// One event of a run.
#[derive(Debug, Clone)]
enum Op {
    /// A request with these chunks, and a rest that is no whole one, for these candidates.
    Give { chunks: Vec<TokenId>, rest: usize, may: [bool; 3] },
    /// A request of an engine ends.
    End(usize),
    /// An engine loses its cache and its requests.
    Die(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let chunks = prop::collection::vec(0..3_u32, 0..5);
    let give = (chunks, 0..CHUNK_LEN, prop::array::uniform3(prop::bool::weighted(0.8)));
    prop_oneof![
        6 => give.prop_map(|(chunks, rest, may)| Op::Give { chunks, rest, may }),
        2 => (0..3_usize).prop_map(Op::End),
        1 => (0..3_usize).prop_map(Op::Die),
    ]
}

/// A load balancer that remembers whole prompts.
#[derive(Default)]
struct Naive {
    given: [Vec<Vec<TokenId>>; 3],
}

impl Naive {
    fn shared(&self, engine: usize, prompt: &[TokenId]) -> usize {
        let common = |other: &Vec<TokenId>| {
            let equal = other.iter().zip(prompt).take_while(|(left, right)| left == right).count();
            // Only whole chunks of both count.
            equal.min(other.len() / CHUNK_LEN * CHUNK_LEN) / CHUNK_LEN
        };
        self.given[engine].iter().map(common).max().unwrap_or(0)
    }

    fn choose(&self, prompt: &[TokenId], loads: &[usize; 3], may: [bool; 3]) -> Option<usize> {
        let engines = || (0..3).filter(|&engine| may[engine]);
        let fewest = engines().map(|engine| loads[engine]).min()?;
        let mut best: Option<usize> = None;
        for engine in engines().filter(|&engine| loads[engine] - fewest <= LEAD_MAX) {
            let is_better = best.is_none_or(|best| {
                let (ours, theirs) = (self.shared(engine, prompt), self.shared(best, prompt));
                ours > theirs || ours == theirs && loads[engine] < loads[best]
            });
            if is_better {
                best = Some(engine);
            }
        }
        best
    }
}

proptest! {
    #[test]
    fn it_chooses_as_one_that_remembers_whole_prompts(
        ops in prop::collection::vec(op(), 0..60),
    ) {
        let (mut balancer, mut naive) = (LoadBalancer::new(3), Naive::default());
        let mut loads = [0_usize; 3];
        for op in ops {
            match op {
                Op::Give { chunks, rest, may } => {
                    let mut prompt = request(&chunks).prompt_token_ids.to_vec();
                    prompt.extend(vec![7; rest]);
                    let expected = naive.choose(&prompt, &loads, may);
                    let mut candidates = candidates(&loads);
                    candidates.retain(|candidate| may[candidate.engine.0]);
                    let asked = EngineRequest::for_test(1, prompt.clone());
                    let chosen = balancer.give(&asked, &mut candidates).map(|engine| engine.0);
                    prop_assert_eq!(chosen, expected);
                    if let Some(engine) = chosen {
                        loads[engine] += 1;
                        naive.given[engine].push(prompt);
                    }
                }
                Op::End(engine) => loads[engine] = loads[engine].saturating_sub(1),
                Op::Die(engine) => {
                    loads[engine] = 0;
                    naive.given[engine].clear();
                    balancer.forget(EngineIndex(engine));
                }
            }
        }
    }
}
