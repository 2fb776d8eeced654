//! The families, a row of data each.

use super::super::NormPlace;
use super::bart::{BartRules, Positions};
use super::plan::TextPlan;
use super::t5::{self, T5Rules};
use crate::model::config::{ConfigError, Fields, gguf_architectures};
use crate::model::supported::SupportedModels;

/// The models of one class of transformers.
#[derive(Debug)]
pub(super) struct TextFamily {
    /// The entry in `architectures`.
    pub(super) architecture: &'static str,
    pub(super) model_type: &'static str,
    /// The published models.
    pub(super) models: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Bart(BartRules),
    T5(T5Rules),
}

impl TextFamily {
    /// Reads `config.json` of a model of this family.
    ///
    /// # Errors
    /// [`ConfigError`] if a field is missing or has no valid value.
    pub(super) fn read(&self, fields: &Fields) -> Result<TextPlan, ConfigError> {
        match &self.kind {
            Kind::Bart(rules) => rules.read(self, fields),
            Kind::T5(rules) => t5::read(self, *rules, fields),
        }
    }

    /// Checks fields that all families have.
    pub(super) fn check(&self, fields: &Fields) -> Result<(), ConfigError> {
        if fields.text("model_type")?.is_some_and(|model_type| model_type != self.model_type) {
            let expected = format!("\"{}\", as `architectures` says", self.model_type);
            return Err(fields.invalid("model_type", &expected));
        }
        if fields.value("quantization_config").is_some() {
            let expected = "nothing: this class has no quantized checkpoints; use `quantization`";
            return Err(fields.invalid("quantization_config", expected));
        }
        Ok(())
    }

    /// Returns the entry in the list of supported models.
    pub(super) fn supported(&self) -> SupportedModels {
        let mut options = vec!["text to text", "encoder and decoder"];
        match &self.kind {
            Kind::T5(_) => options.extend(["relative positions", "RMS norms"]),
            Kind::Bart(rules) => {
                options.push(match rules.positions {
                    Positions::Learned { .. } => "learned positions",
                    Positions::Sinusoids | Positions::SinusoidsBehindPad => "sinusoidal positions",
                });
                options.push("layer norms");
                options.push(match rules.norms {
                    NormPlace::Before => "norms before each part",
                    NormPlace::After => "norms after the sums",
                });
                options.extend(rules.has_logits_bias.then_some("biases of logits"));
            }
        }
        let mut options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        let in_gguf: Vec<&str> = gguf_architectures(self.architecture).collect();
        if !in_gguf.is_empty() {
            options.push(format!("GGUF ({})", in_gguf.join(", ")));
        }
        SupportedModels {
            architecture: self.architecture,
            model_type: self.model_type,
            models: self.models,
            options,
        }
    }
}

const BART: BartRules = BartRules {
    norms: NormPlace::After,
    positions: Positions::Learned { first: 2 },
    norms_embeddings: true,
    has_logits_bias: true,
    may_have_two_tables: false,
};

/// All families.
pub(super) const FAMILIES: &[TextFamily] = &[
    TextFamily {
        architecture: "BartForConditionalGeneration",
        model_type: "bart",
        models: "BART, DistilBART",
        kind: Kind::Bart(BART),
    },
    TextFamily {
        architecture: "MBartForConditionalGeneration",
        model_type: "mbart",
        models: "mBART, mBART-50",
        kind: Kind::Bart(BartRules { norms: NormPlace::Before, ..BART }),
    },
    TextFamily {
        architecture: "MarianMTModel",
        model_type: "marian",
        models: "Marian, OPUS-MT",
        kind: Kind::Bart(BartRules {
            positions: Positions::Sinusoids,
            norms_embeddings: false,
            may_have_two_tables: true,
            ..BART
        }),
    },
    TextFamily {
        architecture: "PegasusForConditionalGeneration",
        model_type: "pegasus",
        models: "Pegasus",
        kind: Kind::Bart(BartRules {
            norms: NormPlace::Before,
            positions: Positions::Sinusoids,
            norms_embeddings: false,
            ..BART
        }),
    },
    TextFamily {
        architecture: "BlenderbotForConditionalGeneration",
        model_type: "blenderbot",
        models: "Blenderbot 400M, 1B and 3B",
        kind: Kind::Bart(BartRules {
            norms: NormPlace::Before,
            positions: Positions::Learned { first: 0 },
            norms_embeddings: false,
            ..BART
        }),
    },
    TextFamily {
        architecture: "M2M100ForConditionalGeneration",
        model_type: "m2m_100",
        models: "M2M100, NLLB-200",
        kind: Kind::Bart(BartRules {
            norms: NormPlace::Before,
            positions: Positions::SinusoidsBehindPad,
            norms_embeddings: false,
            has_logits_bias: false,
            ..BART
        }),
    },
    TextFamily {
        architecture: "T5ForConditionalGeneration",
        model_type: "t5",
        models: "T5, T5 1.1, Flan-T5",
        kind: Kind::T5(T5Rules { feed_forward: "relu", may_scale: true }),
    },
    TextFamily {
        architecture: "MT5ForConditionalGeneration",
        model_type: "mt5",
        models: "mT5",
        kind: Kind::T5(T5Rules { feed_forward: "gated-gelu", may_scale: false }),
    },
];
