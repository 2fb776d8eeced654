//! The list of architectures that are a language model with another head, or with none.

use super::families::Entry;
use super::pooling::{Origin, converted, wrapped};

/// The models of one architecture that pools.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SupportedPoolers {
    /// Their entry in `architectures` of `config.json`.
    pub architecture: String,
    /// The architecture of the language model whose backbone they have.
    pub base: &'static str,
    /// The results that they have.
    pub results: &'static str,
}

/// Returns the architectures of this crate that pool. Encoders are in the list of families.
#[must_use]
pub fn supported_poolers() -> Vec<SupportedPoolers> {
    let entry = |(architecture, base, origin): (String, &'static str, Origin)| {
        let results = match origin {
            Origin::Classifier | Origin::Ranker => "classes and scores",
            Origin::TokenClassifier(_) => "classes of each token",
            Origin::Reward(_) => "a reward of each token",
            _ => "vectors",
        };
        SupportedPoolers { architecture, base, results }
    };
    let is_language_model = |(_, _, origin): &(_, _, Origin)| !matches!(origin, Origin::Encoder(_));
    let texts = converted().filter(is_language_model);
    let texts = texts.map(|(name, entry, origin)| match entry {
        Entry::Family(family) => (name, family.architecture, origin),
        Entry::Wrapper(wrapper) => (name, wrapper.architecture, origin),
    });
    // Classes that only pool have no other base. They are in the list of families.
    let with_images = wrapped().filter(|(name, wrapper, _)| wrapper.architecture != *name);
    let with_images = with_images.map(|(name, it, origin)| (name, it.architecture, origin));
    texts.chain(with_images).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_has_its_results() {
        let listed = supported_poolers();
        let of = |name: &str| {
            let found = listed.iter().find(|entry| entry.architecture == name);
            found.map(|entry| (entry.base, entry.results))
        };
        assert_eq!(of("LlamaModel"), Some(("LlamaForCausalLM", "vectors")));
        let classes = Some(("Qwen3ForCausalLM", "classes and scores"));
        assert_eq!(of("Qwen3ForSequenceClassification"), classes);
        let of_tokens = Some(("GPT2LMHeadModel", "classes of each token"));
        assert_eq!(of("GPT2ForTokenClassification"), of_tokens);
        let multimodal = Some(("Gemma3ForConditionalGeneration", "classes and scores"));
        assert_eq!(of("Gemma3ForSequenceClassification"), multimodal);
        let rewards = Some(("InternLM2ForCausalLM", "a reward of each token"));
        assert_eq!(of("InternLM2ForRewardModel"), rewards);
        assert_eq!(of("Qwen3ForCausalLM"), None);
        // It is in the list of families.
        assert_eq!(of("BertForMaskedLM"), None);
    }
}
