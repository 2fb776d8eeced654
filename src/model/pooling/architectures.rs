//! Architectures that are a causal language model with another head, or with none, and encoders.
//! They are entries of the registry, made from the family of the backbone.

use super::plan::{Origin, RewardHead};
use crate::model::families::{self, encoders};
use crate::model::family::Family;

/// The families whose backbones HF serves as `…Model` and as `…ForSequenceClassification`, with the
/// classifier `score.weight` over the last token: their names in these classes and as language
/// models. Their attention is causal, except in Gemma 3 for embeddings.
const BASES: [(&str, &str); 13] = [
    ("Llama", "Llama"),
    ("Mistral", "Mistral"),
    ("Qwen2", "Qwen2"),
    ("Qwen3", "Qwen3"),
    ("Gemma", "Gemma"),
    ("Gemma2", "Gemma2"),
    ("Gemma3Text", "Gemma3"),
    ("Phi3", "Phi3"),
    ("Glm", "Glm"),
    ("Starcoder2", "Starcoder2"),
    ("Mixtral", "Mixtral"),
    ("Qwen2Moe", "Qwen2Moe"),
    ("Qwen3Moe", "Qwen3Moe"),
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
    let bases = BASES.into_iter().flat_map(move |(base, language)| {
        let family = families::text_family(&format!("{language}ForCausalLM"));
        forms
            .into_iter()
            .filter_map(move |(form, origin)| Some((format!("{base}{form}"), family?, origin)))
    });
    let rewards = REWARDS.into_iter().filter_map(|(name, family, head)| {
        Some((name.to_owned(), families::text_family(family)?, Origin::Reward(head)))
    });
    let of_encoders = encoders::classes()
        .map(|class| (class.architecture.to_owned(), class.family, Origin::Encoder(class.head)));
    bases.chain(rewards).chain(of_encoders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_has_a_family() {
        let names: Vec<_> = converted().map(|(name, ..)| name).collect();
        let num_encoders = encoders::classes().count();
        assert_eq!(names.len(), 2 * BASES.len() + REWARDS.len() + num_encoders);
        for name in [
            "Qwen3ForSequenceClassification",
            "InternLM2ForRewardModel",
            "Gemma3TextModel",
            "BertModel",
        ] {
            assert!(names.contains(&name.to_owned()), "{name}");
        }
    }
}
