//! A crash while the KV cache is full of content that no request needs.

use std::sync::Arc;

use playhouse_actors::logic::{
    kv_cache::{BlockDirectory, KvCacheManager},
    request::ids::{Epoch, RequestId, Step},
    scheduler::{PauseState, RecoveredRequest, SchedulerConfig},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

/// Blocks of 16 tokens, one of which is the null block.
const NUM_BLOCKS: u32 = 41;
const PROMPT: usize = 30;

fn step(harness: &mut Harness, directory: &mut BlockDirectory) {
    harness.step();
    directory.update(Epoch(0), harness.kv_cache.drain_directory_updates());
}

#[test]
fn resumed_requests_leave_each_other_their_blocks() {
    let mut harness = Harness::new(SchedulerConfig { num_blocks: NUM_BLOCKS, ..roomy() });
    let mut directory = BlockDirectory::default();
    harness.add_all(&[PROMPT; 4]);
    for _ in 0..18 {
        step(&mut harness, &mut directory);
    }
    // Another request has all other blocks, and ends.
    harness.add(request(9, own_prompt(9, 28 * 16)));
    step(&mut harness, &mut directory);
    harness.finish(&[9]);
    harness.scheduler.set_pause(PauseState::PausedAll);
    step(&mut harness, &mut directory);
    assert_eq!(directory.sealed().count(), 40, "there is no block without content");
    assert_eq!((harness.blocks(0).len(), harness.output(0).len()), (3, 19));

    let live: Vec<_> = (0..4)
        .map(|id| RecoveredRequest {
            request: Arc::new(request(id, own_prompt(id, PROMPT))),
            output_token_ids: harness.output(id),
            num_prompt_logprobs: 0,
        })
        .collect();
    let num_tokens = |id: RequestId| Some(PROMPT + live[id.0 as usize].output_token_ids.len());
    directory.begin_epoch(Epoch(1), num_tokens);
    let config = SchedulerConfig { num_blocks: NUM_BLOCKS, ..roomy() }.kv_cache();
    let (sealed, tails) = (directory.sealed(), directory.tails());
    harness.kv_cache = KvCacheManager::from_directory(&config, Epoch(1), sealed, tails);
    harness.scheduler.recover(Epoch(1), Step(30), live);
    harness.scheduler.set_pause(PauseState::Unpaused);
    // Each needs a new block for its last token.
    assert_eq!(harness.plan(), tokens([(0, 1), (1, 1), (2, 1), (3, 1)]));
    assert_eq!((0..4).map(|id| harness.hits(id)).collect::<Vec<_>>(), [48; 4]);
}
