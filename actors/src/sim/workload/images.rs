//! The images of prompts.

use super::{ClientPlan, Workload, add_stops};
use crate::{
    logic::{kv_cache::KvKind, scheduler::SchedulerConfig},
    message::input_processor::Prompt,
    sim::{media, rng::Rng},
};

impl Workload {
    /// Returns whether some of its requests have images.
    #[must_use]
    pub fn has_images(&self) -> bool {
        self.clients.iter().any(|client| !client.raw.media.is_empty())
    }
}

/// Gives the prompts of one run in three images, in a cache that hardly holds them.
pub(super) fn set_images(rng: &mut Rng, config: &mut SchedulerConfig, clients: &mut [ClientPlan]) {
    if !rng.percent(33) {
        return;
    }
    let computes_whole = config.kv_spec.groups.is_empty();
    let rooms = if computes_whole { [3, 4, 5] } else { [1, 2, 4] };
    config.encoder_cache_size = media::LARGEST * rng.pick(&rooms);
    config.encoder_budget = media::LARGEST * rng.pick(&[1, 2]);
    let count = rng.pick(&[2, 6, 30]);
    // Layers whose windows all begin behind an image never need it, though it is broken.
    let all_are_read =
        computes_whole || config.kv_spec.groups.iter().any(|group| group.kind == KvKind::Full);
    for client in clients {
        if !matches!(client.raw.prompt, Prompt::Tokens(_)) || rng.percent(40) {
            continue;
        }
        let mut images = Vec::new();
        let mut offset = rng.within(0, 4);
        for _ in 0..rng.within(1, 3) {
            let image = media::image(rng.below(count), offset);
            let end = offset + media::num_embeds(&image);
            if end > client.prompt.len() {
                break;
            }
            offset = end + rng.within(0, 3);
            // One that all tokens attend to leaves room for no other.
            if media::is_attended(&image) {
                images = vec![image];
                break;
            }
            images.push(image);
            // With two that fail, either could be the first.
            if media::failure(&images).is_some() {
                break;
            }
        }
        if media::failure(&images).is_some() && !all_are_read {
            continue;
        }
        if media::failure(&images).is_some() {
            // Those of tokens before the image may have been sent.
            client.raw.params.prompt_logprobs = None;
        }
        client.raw.media = images.into();
        client.raw.params.stop.clear();
        client.raw.params.stop_token_ids.clear();
        if client.raw.pooling.is_none() {
            add_stops(rng, config, client);
        }
    }
}

/// Makes the images of three runs in ten whole: a step computes all tokens of one, or none. Returns
/// whether it does.
pub(super) fn set_whole(rng: &mut Rng, config: &mut SchedulerConfig) -> bool {
    let is_whole = config.max_num_batched_tokens >= media::LARGEST && rng.percent(30);
    if is_whole {
        config.largest_whole_item = media::LARGEST;
    }
    is_whole
}
