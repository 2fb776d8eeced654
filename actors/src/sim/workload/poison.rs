//! Prompts that the model cannot compute.

use std::time::Duration;

use super::{ClientPlan, Manner};
use crate::{
    logic::{
        kv_cache::KvKind,
        request::{FinishReason, failure::Failure, ids::TokenId, sampling_params::SamplingParams},
        scheduler::SchedulerConfig,
    },
    message::input_processor::Prompt,
    sim::rng::Rng,
};

/// A prompt that the model cannot compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// Beginning of the prompt. No other prompt begins with it.
    pub prompt: Vec<TokenId>,
    /// Number of output tokens that the model can compute.
    pub after: usize,
    /// The position in the prompt from which on the content is garbage, if that is before its end.
    /// This shows only when the first token is drawn.
    pub within: Option<usize>,
    /// The effect of the next one.
    pub effect: Effect,
}

/// The effect of a poisoned prompt on a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Its row is not finite.
    Garbage,
    /// The whole step panics.
    Panic,
}

impl Poison {
    /// Returns how a poisoned request ends.
    #[must_use]
    pub fn finish(&self) -> FinishReason {
        FinishReason::Error(match self.effect {
            Effect::Garbage => Failure::NumericalGarbage,
            Effect::Panic => Failure::Quarantined,
        })
    }

    /// Returns whether a prompt is poisoned.
    #[must_use]
    pub fn is_in(&self, prompt: &[TokenId]) -> bool {
        prompt.starts_with(&self.prompt)
    }
}

/// Returns a prompt that the model cannot compute, in one of thirty runs.
pub(super) fn poison(rng: &mut Rng, clients: &mut [ClientPlan]) -> Option<Poison> {
    if !rng.percent(3) {
        return None;
    }
    let prompt = vec![9, 9, 8];
    let client = &mut clients[0];
    client.prompt.splice(0..0, prompt.iter().copied());
    client.prompt.truncate(20);
    client.raw.prompt = Prompt::Tokens(client.prompt.clone());
    client.raw.max_tokens = Some(8);
    client.raw.params.min_tokens = 0;
    let effect = rng.pick(&[Effect::Garbage, Effect::Panic]);
    Some(Poison { prompt, after: rng.within(0, 4), within: None, effect })
}

/// Gives a fifth of the runs without full attention a prompt that becomes garbage before its end,
/// and a client that comes back with it. The prompt is computed in parts. Windows and states pass
/// blocks before the garbage shows.
pub(super) fn poison_within(
    rng: &mut Rng,
    config: &mut SchedulerConfig,
    clients: &mut Vec<ClientPlan>,
) -> Option<Poison> {
    let has_full = config.kv_spec.groups.iter().any(|group| group.kind == KvKind::Full);
    if has_full || !config.enable_prefix_caching || !rng.percent(20) {
        return None;
    }
    let block_size = config.kv_spec.block_size;
    config.enable_chunked_prefill = true;
    config.max_num_batched_tokens = rng.pick(&[3, block_size, 2 * block_size]);
    let poison = vec![9, 9, 8];
    let client = &mut clients[0];
    client.prompt = poison.clone();
    client.prompt.resize((6 * block_size + 1).min(config.max_model_len / 2), 7);
    client.raw.prompt = Prompt::Tokens(client.prompt.clone());
    client.raw.max_tokens = Some(8);
    client.raw.cache_salt = None;
    client.raw.params = SamplingParams { n: 1, ..SamplingParams::default() };
    client.manners = vec![Manner::Patient];
    // A third request that ends so would wake the canary, whose stream is no client's.
    let arrival = Duration::from_millis(rng.below(250));
    let returning = ClientPlan { arrival, ..client.clone() };
    clients.push(returning);
    let within = Some(rng.below(2 * block_size as u64) as usize);
    Some(Poison { prompt: poison, after: 0, within, effect: Effect::Garbage })
}
