//! Architectures that are a causal language model with another head, or with none, and encoders.
//! They are entries of the registry, made from the family of the backbone.

use super::plan::{Origin, RewardHead};
use crate::model::families::{
    self, Entry, RANKERS, TWO_TOWERS, WRAPPERS, encoders, pooled_wrappers,
};
use crate::model::wrapper::Wrapper;

/// Families whose text models have a name of their own in transformers, beside multimodal ones.
const TEXTS: [&str; 7] =
    ["Gemma3", "Gemma3n", "Gemma4", "Llama4", "Qwen3_5", "Qwen3_5Moe", "Qwen4Exp"];

/// The modules of the classifiers that HF's `…ForTokenClassification` have, each with the
/// beginnings of the names of the classes.
const OF_TOKENS: &[(&str, &[&str])] = &[
    (
        "score",
        &[
            "Apertus",
            "Arcee",
            "DeepseekV3",
            "Exaone4",
            "Gemma",
            "Gemma2",
            "Glm",
            "Glm4",
            "GptOss",
            "Helium",
            "Llama",
            "MiniMax",
            "Ministral",
            "Ministral3",
            "Mistral",
            "Mixtral",
            "Nemotron",
            "Persimmon",
            "Phi",
            "Phi3",
            "Qwen2",
            "Qwen2Moe",
            "Qwen3",
            "Qwen3Moe",
            "Qwen3Next",
            "Qwen3_5",
            "SeedOss",
            "SmolLM3",
            "StableLm",
            "Starcoder2",
        ],
    ),
    (
        "classifier",
        &["BioGpt", "Bloom", "Falcon", "GPT2", "GPTBigCode", "GPTNeo", "GPTNeoX", "Mpt"],
    ),
];

/// Reward models: code in folders, each with the family of its backbone and its head.
const REWARDS: [(&str, &str, RewardHead); 3] = [
    ("Qwen2ForRewardModel", "Qwen2ForCausalLM", RewardHead::Outcome),
    ("Qwen2ForProcessRewardModel", "Qwen2ForCausalLM", RewardHead::Process),
    ("InternLM2ForRewardModel", "InternLM2ForCausalLM", RewardHead::Value),
];

/// vLLM's names of backbones whose other parts are modules of sentence-transformers, each with the
/// family.
const BACKBONES: [(&str, &str); 1] = [("ColBERTLfm2Model", "Lfm2ForCausalLM")];

/// Returns the name that the classes of a family begin with: "Llama" of "LlamaForCausalLM".
fn class_prefix(architecture: &str) -> Option<String> {
    if let Some(name) = architecture.strip_suffix("ForConditionalGeneration") {
        return Some(name.to_owned());
    }
    let name = architecture.strip_suffix("ForCausalLM");
    let name = name.or_else(|| architecture.strip_suffix("LMHeadModel"))?;
    let suffix = if TEXTS.contains(&name) { "Text" } else { "" };
    Some(format!("{name}{suffix}"))
}

/// Returns the classes of a backbone whose names begin with `prefix`, with their heads. As in vLLM,
/// each has `…ForSequenceClassification`, also where HF has no class of that name.
fn classes_of(prefix: &str, entry: Entry) -> impl Iterator<Item = (String, Entry, Origin)> + use<> {
    let of_tokens = OF_TOKENS.iter().find(|(_, prefixes)| prefixes.contains(&prefix));
    let is_text = matches!(entry, Entry::Family(_));
    let is_in_wrapped = matches!(entry, Entry::Wrapper(it) if it.classifier().is_some());
    let all = [
        is_text.then_some(("Model", Origin::Backbone)),
        (!is_in_wrapped).then_some(("ForSequenceClassification", Origin::Classifier)),
        of_tokens.map(|(module, _)| ("ForTokenClassification", Origin::TokenClassifier(module))),
    ];
    let prefix = prefix.to_owned();
    all.into_iter().flatten().map(move |(form, origin)| (format!("{prefix}{form}"), entry, origin))
}

/// Returns the architectures, each with its backbone and its own heads. Every family has a
/// `…Model`. Attention is causal, except in Gemma 3 for embeddings. A multimodal class has
/// classifiers of its text alone, unless it is in [`wrapped`].
pub(in crate::model) fn converted() -> impl Iterator<Item = (String, Entry, Origin)> {
    let own = families::entries().filter(|(name, entry)| match entry {
        // Another spelling has the same classes.
        Entry::Family(family) => family.architecture == *name,
        Entry::Wrapper(_) => true,
    });
    let bases = own.flat_map(|(name, entry)| {
        let classes = class_prefix(name).map(|prefix| classes_of(&prefix, entry));
        classes.into_iter().flatten()
    });
    let rewards = REWARDS.into_iter().filter_map(|(name, family, head)| {
        let family = families::text_family(family)?;
        Some((name.to_owned(), Entry::Family(family), Origin::Reward(head)))
    });
    let backbones = BACKBONES.into_iter().filter_map(|(name, family)| {
        let family = families::text_family(family)?;
        Some((name.to_owned(), Entry::Family(family), Origin::Backbone))
    });
    let of_encoders = encoders::classes().map(|class| {
        let entry = Entry::Family(class.family);
        (class.architecture.to_owned(), entry, Origin::Encoder(class.head))
    });
    // `ChatGLMModel` generates.
    let bases = bases.filter(|(name, ..)| families::by_architecture(name).is_none());
    bases.chain(rewards).chain(backbones).chain(of_encoders)
}

/// Returns the architectures that are a multimodal class with another head, or with none.
pub(in crate::model) fn wrapped() -> impl Iterator<Item = (String, &'static Wrapper, Origin)> {
    let classifiers = WRAPPERS
        .iter()
        .filter_map(|wrapper| Some((wrapper.classifier()?, wrapper, Origin::Classifier)));
    let towers = TWO_TOWERS.iter();
    let towers = towers.map(|it| (it.architecture.to_owned(), it, Origin::Backbone));
    let with_heads = pooled_wrappers()
        .map(|(it, head)| (it.architecture.to_owned(), it, Origin::Encoder(*head)));
    let rankers = RANKERS.iter().filter_map(|(name, base)| {
        Some(((*name).to_owned(), families::wrapper_of(base)?, Origin::Ranker))
    });
    classifiers.chain(towers).chain(with_heads).chain(rankers)
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
        let names = converted().map(|(name, ..)| name);
        let names: Vec<_> = names.chain(wrapped().map(|(name, ..)| name)).collect();
        let has = |name: &str| names.iter().any(|known| known == name);
        for prefix in OF_TOKENS.iter().flat_map(|(_, prefixes)| *prefixes) {
            for form in ["ForSequenceClassification", "ForTokenClassification"] {
                assert!(has(&format!("{prefix}{form}")), "{prefix}{form}");
            }
        }
        let mut prefixes: Vec<_> = OF_TOKENS.iter().flat_map(|(_, prefixes)| *prefixes).collect();
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
            "ColBERTLfm2Model",
            "BertSpladeSparseEmbeddingModel",
            "CohereForSequenceClassification",
            "JambaForSequenceClassification",
            "Gemma3ForSequenceClassification",
            "Gemma3TextForSequenceClassification",
            "Qwen3_5ForTokenClassification",
        ] {
            assert!(has(name), "{name}");
        }
        assert!(!has("Gemma3Model") && !has("CohereForTokenClassification"));
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "each name has one meaning");
    }
}
