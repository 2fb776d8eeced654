//! The list of supported models that `playhouse models` prints.

use super::audio;
use super::config::{WindowRule, gguf_architectures};
use super::encoder_class::{EncoderClass, EncoderHead};
use super::encoder_decoder::text;
use super::families::{FAMILIES, TWO_TOWERS, WRAPPERS, encoders, pooled_wrappers};
use super::family::{Bias, Family, HeadNormRule, NormKind, PositionRule};
use super::static_embedding;
use super::wrapper::Wrapper;

/// The models of one architecture.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SupportedModels {
    /// Their entry in `architectures` of `config.json`.
    pub architecture: &'static str,
    /// Their `model_type`.
    pub model_type: &'static str,
    /// The published models.
    pub models: &'static str,
    /// The parts that differ from Llama, and the fields that turn parts on.
    pub options: Vec<String>,
}

/// Returns the models of each architecture of this crate.
#[must_use]
pub fn supported_models() -> Vec<SupportedModels> {
    let families = FAMILIES.iter().map(|family| SupportedModels::of(family));
    let wrappers = WRAPPERS.iter().chain(that_pool()).map(SupportedModels::of_wrapper);
    let encoders = encoders::classes().map(SupportedModels::of_encoder);
    let both = audio::supported().chain(text::supported());
    let tables = std::iter::once(static_embedding::supported());
    families.chain(wrappers).chain(encoders).chain(both).chain(tables).collect()
}

/// Returns the multimodal classes that only pool.
fn that_pool() -> impl Iterator<Item = &'static Wrapper> {
    TWO_TOWERS.iter().chain(pooled_wrappers().map(|(wrapper, _)| wrapper))
}

/// Returns whether models of this architecture have parts for media, which are not served.
#[must_use]
pub fn serves_text_alone(architecture: &str) -> bool {
    WRAPPERS.iter().any(|it| it.architecture == architecture && !it.takes_media())
}

impl SupportedModels {
    /// Returns whether the class is an encoder, or another one that only pools.
    #[must_use]
    pub fn is_encoder(&self) -> bool {
        self.architecture == static_embedding::ARCHITECTURE
            || that_pool().any(|wrapper| wrapper.architecture == self.architecture)
            || encoders::classes().any(|class| class.architecture == self.architecture)
    }

    /// Returns the entry of a multimodal class, with the options that all its text models have.
    fn of_wrapper(wrapper: &Wrapper) -> Self {
        let Wrapper { architecture, model_type, models, texts, .. } = *wrapper;
        let is_pair = TWO_TOWERS.contains(wrapper);
        let of_head = pooled_wrappers().find(|(it, _)| it == wrapper).map(|(_, head)| match head {
            EncoderHead::Pooled(_) => "vectors of texts and images",
            EncoderHead::Sequence(_) => "text and images, scores of pairs",
            _ => "text and images, a vector for each token",
        });
        let media = of_head.unwrap_or(match (wrapper.vision.is_empty(), wrapper.audio) {
            (false, _) if is_pair => "vectors of texts and of images",
            (false, Some(_)) => "text, images and sounds",
            (false, _) if wrapper.vision.iter().any(|family| family.hears()) => {
                "text, images and sounds"
            }
            (false, _) => "text and images",
            (true, Some(_)) => "text and sounds",
            (true, None) => "text only",
        });
        let mut options = vec![media.to_owned()];
        let mut texts = texts.iter().map(|text| Self::of(&text.family).options);
        let first = texts.next().unwrap_or_default();
        let others: Vec<Vec<String>> = texts.collect();
        let is_common = |option: &String| others.iter().all(|other| other.contains(option));
        options.extend(first.into_iter().filter(is_common));
        Self { architecture, model_type, models, options }
    }

    /// Returns the entry of a class of encoders, with its head.
    fn of_encoder(class: EncoderClass) -> Self {
        let EncoderClass { architecture, family, head } = class;
        let head = match head {
            EncoderHead::Pooled(_) if encoders::is_causal(&class) => "vectors, causal attention",
            EncoderHead::Vectors | EncoderHead::Pooled(_) => "encoder: vectors",
            EncoderHead::Sequence(_) => "encoder: classes, scores of pairs",
            EncoderHead::Tokens(_) => "encoder: classes of tokens",
            EncoderHead::MaskedLm(_) => "encoder: sparse vectors (SPLADE)",
            EncoderHead::TokenVectors { .. } | EncoderHead::TokenStates => {
                "encoder: a vector for each token (ColBERT)"
            }
            EncoderHead::Projected { .. } => "encoder: vectors, behind a layer",
            EncoderHead::Listwise { .. } => "ranks documents in one prompt, causal attention",
            EncoderHead::Threefold => "encoder: vectors, and vectors and weights of tokens",
        };
        let Family { model_type, models, .. } = *family;
        let mut options = vec![head.to_owned()];
        if let Some(models) = encoders::of_authors(&class) {
            options.push(format!("{models}: compared with the formulas of the authors' code"));
        }
        let in_gguf: Vec<&str> = gguf_architectures(architecture).collect();
        if !in_gguf.is_empty() {
            options.push(format!("GGUF ({})", in_gguf.join(", ")));
        }
        Self { architecture, model_type, models, options }
    }

    fn of(family: &Family) -> Self {
        let mut options = Vec::new();
        let mut option = |text: &str| options.push(text.to_owned());
        match family.positions {
            PositionRule::Rotary { is_interleaved: true, .. } => {
                option("rotary pairs of neighbours")
            }
            PositionRule::Rotary { percent, .. } if percent < 100 => {
                option(&format!("{percent} % of a head rotates"));
            }
            PositionRule::Rotary { .. } => {}
            PositionRule::None if !family.names.mamba.is_empty() => option("no positions"),
            PositionRule::None if !family.names.embed_positions.is_empty() => {
                option("learned positions");
            }
            PositionRule::None => option("ALiBi"),
            PositionRule::AfterPadding | PositionRule::AfterRows(_) => option("learned positions"),
        }
        match family.windows {
            WindowRule::Never => {}
            WindowRule::Always => option("sliding window"),
            WindowRule::IfSet => option("sliding window (sliding_window)"),
            WindowRule::FromMaxWindowLayers
            | WindowRule::IfUsed
            | WindowRule::EveryOther
            | WindowRule::WithoutRope => {
                option("sliding window (use_sliding_window)");
            }
            WindowRule::ChunksWithRope => option("attention within chunks (attention_chunk_size)"),
            WindowRule::AllButEvery { period: 1, .. } => option("sliding window (layer_types)"),
            WindowRule::AllButEvery { period, .. } => {
                option(&format!("sliding window in {} layers of {period}", period - 1));
            }
            WindowRule::AllButFirstOf { period, .. } => {
                option(&format!("sliding window in {} layers of {period}", period - 1));
            }
        }
        let is_rms = matches!(
            family.norm.kind,
            NormKind::Rms | NormKind::RmsPlusOne | NormKind::RmsUnweighted | NormKind::Length
        );
        if !is_rms {
            option("layer norms");
        }
        if family.names.attention.q_norm.is_some() {
            option(match family.head_norm {
                HeadNormRule::RmsAcrossHeads | HeadNormRule::LayerAcrossHeads => {
                    "norms over all heads"
                }
                _ => "norms of heads",
            });
        }
        for kind in family.mixers.iter().filter(|kind| !kind.runs_on_gpus()) {
            option(&format!("{} on CPUs only", kind.name()));
        }
        if family.is_parallel {
            option("parallel blocks");
        }
        if !family.mlp.is_gated {
            option("MLP without a gate");
        }
        for bias in [family.qkv_bias, family.o_bias, family.mlp_bias] {
            if let Bias::IfSet(field) | Bias::UnlessUnset(field) = bias {
                let text = format!("biases ({field})");
                if !options.contains(&text) {
                    options.push(text);
                }
            }
        }
        let Family { architecture, model_type, models, .. } = *family;
        // Files of EmbeddingGemma have the class without an output layer.
        let backbone = architecture.replace("ForCausalLM", "TextModel");
        let in_gguf = gguf_architectures(architecture).chain(gguf_architectures(&backbone));
        let in_gguf: Vec<&str> = in_gguf.collect();
        if !in_gguf.is_empty() {
            options.push(format!("GGUF ({})", in_gguf.join(", ")));
        }
        Self { architecture, model_type, models, options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multimodal_classes_are_listed_as_text_only() {
        let listed = supported_models();
        let is_text_only = |models: &&SupportedModels| models.options.contains(&"text only".into());
        let of_text = WRAPPERS.iter().filter(|wrapper| !wrapper.takes_media());
        assert_eq!(listed.iter().filter(is_text_only).count(), of_text.count());
        assert!(!serves_text_alone("LlavaForConditionalGeneration"));
        for SupportedModels { architecture, options, .. } in &listed {
            let is_text_only = options.iter().any(|option| option == "text only");
            assert_eq!(serves_text_alone(architecture), is_text_only, "{architecture}");
        }
        assert!(!serves_text_alone("Gemma3ForConditionalGeneration"));
        assert!(serves_text_alone("Gemma3nForConditionalGeneration"));
        assert!(!serves_text_alone("Gemma3ForCausalLM"));
        // A GGUF file has a text model alone.
        let gemma = listed.iter().find(|models| models.model_type == "gemma3").unwrap();
        assert!(gemma.options.iter().all(|option| !option.contains("GGUF")), "{gemma:?}");
    }

    #[test]
    fn a_family_has_the_names_of_its_files_with_and_without_an_output_layer() {
        let listed = supported_models();
        let gemma = listed.iter().find(|models| models.architecture == "Gemma3ForCausalLM");
        let options = &gemma.unwrap().options;
        assert!(options.contains(&"GGUF (gemma3, gemma-embedding)".to_owned()), "{options:?}");
    }

    /// A tensor is in one part of a model: those of text have no prefix in common with others.
    #[test]
    fn the_parts_of_multimodal_classes_are_apart() {
        for wrapper in WRAPPERS.iter().chain(that_pool()) {
            assert!(!wrapper.texts.is_empty() && !wrapper.places.is_empty());
            for text in wrapper.texts {
                assert_eq!(text.family.architecture, wrapper.architecture);
            }
            for place in wrapper.places {
                for module in [place.base, place.lm_head] {
                    let name = format!("{module}.weight");
                    assert!(!wrapper.is_unread(&name), "{}: {name}", wrapper.architecture);
                }
            }
        }
    }
}
