//! Architectures that are a causal language model with another head, or with none, and encoders.
//! They are entries of the registry, made from the family of the backbone.

use super::plan::{Origin, RewardHead};
use crate::model::families::{
    self, Entry, LATE_INTERACTION, RANKERS, TWO_TOWERS, WRAPPERS, encoders,
};
use crate::model::family::Family;
use crate::model::wrapper::Wrapper;

/// Families whose text models have a name of their own in transformers, beside multimodal ones.
const TEXTS: [&str; 6] = ["Gemma3", "Gemma3n", "Gemma4", "Llama4", "Qwen3_5", "Qwen3_5Moe"];

/// The classes with classifiers that HF has for some backbones.
struct Classes {
    /// Whether there is `…ForSequenceClassification`, with `score.weight` over the last token.
    of_texts: bool,
    /// The module of the classifier of `…ForTokenClassification`, if there is that class.
    of_tokens: Option<&'static str>,
    /// The beginnings of the names of the classes.
    prefixes: &'static [&'static str],
}

/// The backbones that HF has with classifiers. Each is in one row.
const CLASSIFIERS: &[Classes] = &[
    Classes {
        of_texts: true,
        of_tokens: Some("score"),
        prefixes: &[
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
            "Arcee",
            "DeepseekV3",
            "Exaone4",
            "Glm4",
            "GptOss",
            "Helium",
            "MiniMax",
            "Ministral",
            "Ministral3",
            "Nemotron",
            "Persimmon",
            "Phi",
            "Qwen3Next",
            "SeedOss",
            "SmolLM3",
            "StableLm",
        ],
    },
    Classes {
        of_texts: true,
        of_tokens: Some("classifier"),
        prefixes: &["BioGpt", "Bloom", "Falcon", "GPT2", "GPTBigCode", "GPTNeo", "GPTNeoX", "Mpt"],
    },
    Classes {
        of_texts: true,
        of_tokens: None,
        prefixes: &[
            "Gemma3Text",
            "DeepseekV2",
            "GPTJ",
            "HunYuanDenseV1",
            "HunYuanMoEV1",
            "Jamba",
            "MiniCPM3",
            "OPT",
            "Olmo",
            "Olmo2",
            "Olmo3",
            "Phimoe",
            "Qwen3_5Text",
        ],
    },
    Classes { of_texts: false, of_tokens: Some("score"), prefixes: &["Apertus"] },
];

/// Reward models: code in folders, each with the family of its backbone and its head.
const REWARDS: [(&str, &str, RewardHead); 3] = [
    ("Qwen2ForRewardModel", "Qwen2ForCausalLM", RewardHead::Outcome),
    ("Qwen2ForProcessRewardModel", "Qwen2ForCausalLM", RewardHead::Process),
    ("InternLM2ForRewardModel", "InternLM2ForCausalLM", RewardHead::Value),
];

/// Returns the name that the classes of a family begin with: "Llama" of "LlamaForCausalLM".
fn class_prefix(architecture: &str) -> Option<String> {
    let name = architecture.strip_suffix("ForCausalLM");
    let name = name.or_else(|| architecture.strip_suffix("LMHeadModel"))?;
    let suffix = if TEXTS.contains(&name) { "Text" } else { "" };
    Some(format!("{name}{suffix}"))
}

/// Returns the classes of a backbone whose names begin with `prefix`, with their heads.
fn classes_of(prefix: &str) -> impl Iterator<Item = (String, Origin)> + use<> {
    let classes = CLASSIFIERS.iter().find(|classes| classes.prefixes.contains(&prefix));
    let of_texts = classes.is_some_and(|classes| classes.of_texts);
    let of_tokens = classes.and_then(|classes| classes.of_tokens);
    let all = [
        Some(("Model", Origin::Backbone)),
        of_texts.then_some(("ForSequenceClassification", Origin::Classifier)),
        of_tokens.map(|module| ("ForTokenClassification", Origin::TokenClassifier(module))),
    ];
    let prefix = prefix.to_owned();
    all.into_iter().flatten().map(move |(form, origin)| (format!("{prefix}{form}"), origin))
}

/// Returns the architectures, each with the family of its backbone and its own heads. Every family
/// has a `…Model`. Attention is causal, except in Gemma 3 for embeddings.
pub(in crate::model) fn converted() -> impl Iterator<Item = (String, &'static Family, Origin)> {
    let own = families::entries().filter_map(|(name, entry)| match entry {
        // Another spelling has the same classes.
        Entry::Family(family) if family.architecture == name => Some(family),
        Entry::Family(_) | Entry::Wrapper(_) => None,
    });
    let bases = own.flat_map(|family| {
        let classes = class_prefix(family.architecture).map(|prefix| classes_of(&prefix));
        classes.into_iter().flatten().map(move |(name, origin)| (name, family, origin))
    });
    let rewards = REWARDS.into_iter().filter_map(|(name, family, head)| {
        Some((name.to_owned(), families::text_family(family)?, Origin::Reward(head)))
    });
    let of_encoders = encoders::classes()
        .map(|class| (class.architecture.to_owned(), class.family, Origin::Encoder(class.head)));
    bases.chain(rewards).chain(of_encoders)
}

/// Returns the architectures that are a multimodal class with another head, or with none.
pub(in crate::model) fn wrapped() -> impl Iterator<Item = (String, &'static Wrapper, Origin)> {
    let classifiers = WRAPPERS
        .iter()
        .filter_map(|wrapper| Some((wrapper.classifier()?, wrapper, Origin::Classifier)));
    let towers = TWO_TOWERS.iter();
    let towers = towers.map(|it| (it.architecture.to_owned(), it, Origin::Backbone));
    let of_tokens = LATE_INTERACTION
        .iter()
        .map(|(it, head)| (it.architecture.to_owned(), it, Origin::Encoder(*head)));
    let rankers = RANKERS.iter().filter_map(|(name, base)| {
        Some(((*name).to_owned(), families::wrapper_of(base)?, Origin::Ranker))
    });
    classifiers.chain(towers).chain(of_tokens).chain(rankers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multimodal_classes_have_classifiers_and_two_towers_have_vectors() {
        let all: Vec<_> = wrapped().collect();
        let of = |name: &str| {
            let found = all.iter().find(|(known, ..)| known == name);
            found.map(|(_, wrapper, origin)| (wrapper.architecture, *origin))
        };
        let qwen = Some(("Qwen3VLForConditionalGeneration", Origin::Classifier));
        assert_eq!(of("Qwen3VLForSequenceClassification"), qwen);
        assert_eq!(of("CLIPModel"), Some(("CLIPModel", Origin::Backbone)));
        let ranker = Some(("Qwen2VLForConditionalGeneration", Origin::Ranker));
        assert_eq!(of("JinaVLForRanking"), ranker);
        assert_eq!(of("Gemma3nForSequenceClassification"), None, "its images are not served");
        assert!(converted().all(|(name, ..)| of(&name).is_none()), "each name has one meaning");
        for (name, wrapper, _) in &all {
            let found = families::wrapper_of(name).map(|found| found.architecture);
            assert_eq!(found, Some(wrapper.architecture));
        }
    }

    #[test]
    fn every_backbone_has_its_classes() {
        let names: Vec<_> = converted().map(|(name, ..)| name).collect();
        let has = |name: &str| names.iter().any(|known| known == name);
        for classes in CLASSIFIERS {
            for prefix in classes.prefixes {
                let is_there = |form: &str| has(&format!("{prefix}{form}"));
                assert!(is_there("Model"), "{prefix}");
                assert_eq!(is_there("ForSequenceClassification"), classes.of_texts, "{prefix}");
                assert_eq!(
                    is_there("ForTokenClassification"),
                    classes.of_tokens.is_some(),
                    "{prefix}",
                );
            }
        }
        let mut prefixes: Vec<_> =
            CLASSIFIERS.iter().flat_map(|classes| classes.prefixes).collect();
        let count = prefixes.len();
        prefixes.sort();
        prefixes.dedup();
        assert_eq!(prefixes.len(), count, "each backbone is in one row");
        for name in [
            "InternLM2ForRewardModel",
            "BertModel",
            "CohereModel",
            "GPT2Model",
            "Gemma3TextModel",
            "Llama4TextModel",
            "GteNewModel",
            "ColBERTModernBertModel",
            "BertSpladeSparseEmbeddingModel",
        ] {
            assert!(has(name), "{name}");
        }
        assert!(!has("Gemma3Model") && !has("CohereForSequenceClassification"));
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "each name has one meaning");
    }
}
