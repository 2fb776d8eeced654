//! Architectures that are a causal language model with another head, or with none. They are entries
//! of the registry, made from the family of the language model.

use super::plan::{Origin, RewardHead};
use crate::model::families;
use crate::model::family::Family;

/// The families whose backbones HF serves as `…Model` and as `…ForSequenceClassification`, with the
/// classifier `score.weight` over the last token. All attention of them is causal.
const BASES: [&str; 12] = [
    "Llama",
    "Mistral",
    "Qwen2",
    "Qwen3",
    "Gemma",
    "Gemma2",
    "Phi3",
    "Glm",
    "Starcoder2",
    "Mixtral",
    "Qwen2Moe",
    "Qwen3Moe",
];

/// Reward models: code in folders, each with the family of its backbone and its head.
const REWARDS: [(&str, &str, RewardHead); 3] = [
    ("Qwen2ForRewardModel", "Qwen2ForCausalLM", RewardHead::Outcome),
    ("Qwen2ForProcessRewardModel", "Qwen2ForCausalLM", RewardHead::Process),
    ("InternLM2ForRewardModel", "InternLM2ForCausalLM", RewardHead::Value),
];

/// Returns the architectures, each with the family of its backbone and its own heads.
pub(in crate::model) fn converted() -> impl Iterator<Item = (String, &'static Family, Origin)> {
    let forms = [("Model", Origin::Backbone), ("ForSequenceClassification", Origin::Classifier)];
    let bases = BASES.into_iter().flat_map(move |base| {
        let family = families::text_family(&format!("{base}ForCausalLM"));
        forms
            .into_iter()
            .filter_map(move |(form, origin)| Some((format!("{base}{form}"), family?, origin)))
    });
    let rewards = REWARDS.into_iter().filter_map(|(name, family, head)| {
        Some((name.to_owned(), families::text_family(family)?, Origin::Reward(head)))
    });
    bases.chain(rewards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_has_a_family() {
        let names: Vec<_> = converted().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), 2 * BASES.len() + REWARDS.len());
        assert!(names.contains(&"Qwen3ForSequenceClassification".to_owned()));
        assert!(names.contains(&"InternLM2ForRewardModel".to_owned()));
    }
}
