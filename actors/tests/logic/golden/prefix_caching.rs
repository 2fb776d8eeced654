//! vLLM's test_prefix_caching: the tokens that are hits, and the order in which blocks are reused.

use playhouse_actors::logic::{request::ids::TokenId, scheduler::SchedulerConfig};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

/// Returns a prompt of `num_shared` tokens that all these prompts share, then `num_own` tokens of
/// this request only.
fn shared_prompt(id: u64, num_shared: usize, num_own: usize) -> Vec<TokenId> {
    let mut prompt: Vec<TokenId> = (0..num_shared as TokenId).collect();
    prompt.extend(own_prompt(id, num_own));
    prompt
}

fn pool_of(num_usable: u32) -> SchedulerConfig {
    SchedulerConfig { num_blocks: num_usable + 1, ..roomy() }
}

#[test]
fn a_shared_prefix_is_computed_once() {
    let mut harness = Harness::new(pool_of(10));
    harness.add(request(0, shared_prompt(0, 48, 7)));
    harness.step();
    assert_eq!(harness.blocks(0), [1, 2, 3, 4]);
    harness.add(request(1, shared_prompt(1, 48, 7)));
    harness.plan();
    assert_eq!(harness.hits(1), 48);
    assert_eq!(harness.blocks(1), [1, 2, 3, 5]);
}

#[test]
fn test_prefill_frees_in_reverse_hashed_blocks_last() {
    let mut harness = Harness::new(pool_of(10));
    harness.add(request(0, shared_prompt(0, 48, 7)));
    harness.step();
    harness.add(request(1, shared_prompt(1, 48, 7)));
    harness.plan();
    harness.finish(&[0]);
    harness.compute(0);
    harness.plan();
    harness.compute(0);
    harness.finish(&[1]);
    harness.plan();
    assert_eq!(harness.free_queue(), [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]);
}

#[test]
fn the_last_token_is_always_computed() {
    let mut harness = Harness::new(roomy());
    harness.add(request(0, 0..48));
    harness.step();
    harness.add(request(1, 0..48));
    assert_eq!(harness.plan()[&1], 16);
    assert_eq!(harness.hits(1), 32);
    harness.compute(0);
    harness.add(request(2, 0..49));
    assert_eq!(harness.plan()[&2], 1);
    assert_eq!(harness.hits(2), 48);
}

#[test]
fn equal_prompts_of_one_step_share_blocks() {
    let mut harness = Harness::new(roomy());
    harness.add(request(0, 0..64));
    harness.add(request(1, 0..64));
    assert_eq!(harness.plan(), tokens([(0, 64), (1, 16)]));
    assert_eq!((harness.hits(0), harness.hits(1)), (0, 48));
    assert_eq!((harness.blocks(0), harness.blocks(1)), (&[1, 2, 3, 4][..], &[1, 2, 3, 5][..]));
}

#[test]
fn outputs_are_hits_for_a_follow_up() {
    let mut harness = Harness::new(roomy());
    harness.add(request(0, 0..30));
    for token in 30..35 {
        harness.plan();
        harness.compute(token);
    }
    harness.finish(&[0]);
    harness.add(request(1, 0..38));
    harness.plan();
    assert_eq!(harness.hits(1), 32);
}

#[test]
fn prompt_logprobs_do_not_read_the_cache() {
    let mut harness = Harness::new(roomy());
    harness.add(request(0, 0..48));
    harness.step();
    let mut asking = request(1, 0..48);
    asking.sampling_mut().prompt_logprobs = Some(0);
    harness.add(asking);
    harness.plan();
    assert_eq!(harness.hits(1), 0);
}

#[test]
fn a_salt_keeps_its_entries_apart() {
    let mut harness = Harness::new(roomy());
    let salts = [Some("s1"), Some("s2"), Some("s1"), None];
    let hits = (0..).zip(salts).map(|(id, salt)| {
        let mut salted = request(id, 0..48);
        salted.cache_salt = salt.map(Into::into);
        harness.add(salted);
        harness.plan();
        harness.compute(0);
        harness.hits(id)
    });
    assert_eq!(hits.collect::<Vec<_>>(), [0, 0, 32, 0]);
}

#[test]
fn the_free_queue_is_in_order_of_last_use() {
    let mut harness = Harness::new(pool_of(10));
    harness.add(request(0, 0..48));
    harness.add(request(1, 100..148));
    harness.plan();
    harness.finish(&[0, 1]);
    harness.compute(0);
    harness.plan();
    assert_eq!(harness.free_queue(), [7, 8, 9, 10, 3, 2, 1, 6, 5, 4]);
    harness.add(request(2, shared_prompt(2, 32, 8)));
    harness.plan();
    assert_eq!(harness.blocks(2), [1, 2, 7]);
    harness.finish(&[2]);
    harness.compute(0);
    harness.plan();
    assert_eq!(harness.free_queue(), [7, 8, 9, 10, 3, 6, 5, 4, 2, 1]);
}
