//! The heads of encoders, resolved by the fields of `config.json`.

use std::{iter, path::Path};

use serde_json::{Map, Value};

use super::{ClassifierActivation, DenseActivation};
use crate::{
    config::SequencePooling,
    model::{
        ConfigError, ModelError,
        config::ActivationName,
        encoder_class::{
            ClassHead, EncoderHead, HeadActivation, HeadModule, LmTransform, MaskedLmHead,
            PoolingField,
        },
        family::{Bias, NormKind},
        layers::{LmTransformPlan, MaskedLmPlan},
    },
};

/// The field that names the pooling of vectors in Jina's classes, and the pooling of others.
const VECTORS_POOLING: PoolingField =
    PoolingField { field: "emb_pooler", default: "cls", accepted: &["cls", "mean"] };

/// A layer of a head to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerPlan {
    Dense { module: &'static str, has_bias: bool, activation: DenseActivation },
    Norm { module: &'static str },
}

/// The head beside a classifier that an encoder gets, and its pooling by default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model) struct EncoderPlan {
    pub(super) sequence: SequencePooling,
    /// Whether the pooling is that of the classes of all tokens.
    pub(super) pools_classes: bool,
    /// The head of a masked language model, for a sparse pooling.
    pub(super) vocabulary: Option<MaskedLmPlan>,
    /// The projection of each token.
    pub(super) projection: Option<ProjectionPlan>,
    /// Whether texts have no vector behind the projection.
    pub(super) projects_tokens_alone: bool,
    /// The modules of two layers behind the tokens of a ranking.
    pub(super) listwise: Option<[&'static str; 2]>,
}

/// A projection whose rows decide the width of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProjectionPlan {
    /// Its module.
    pub(super) module: &'static str,
    /// Its module in other checkpoints.
    pub(super) other: Option<&'static str>,
    /// Whether it has a bias. `None`: the checkpoint decides.
    pub(super) has_bias: Option<bool>,
}

impl EncoderHead {
    /// Returns the layers of the classifier, if the class has one.
    pub(super) fn class_head(self) -> Option<ClassHead> {
        match self {
            Self::Sequence(head) | Self::Tokens(head) => Some(head),
            Self::Vectors
            | Self::Pooled(_)
            | Self::MaskedLm(_)
            | Self::TokenVectors { .. }
            | Self::TokenStates
            | Self::Projected { .. }
            | Self::Listwise { .. }
            | Self::Threefold => None,
        }
    }
}

impl EncoderPlan {
    /// Returns the head of an encoder, of which `is_sparse` says whether weights of the vocabulary
    /// are pooled.
    pub(super) fn new(
        fields: HeadFields<'_>,
        head: EncoderHead,
        is_sparse: bool,
    ) -> Result<Self, ModelError> {
        let vocabulary = match head {
            EncoderHead::MaskedLm(head) if is_sparse => Some(fields.masked_lm(head)?),
            _ => None,
        };
        let projection = match head {
            EncoderHead::TokenVectors { module, other, has_bias } => {
                Some(ProjectionPlan { module, other, has_bias })
            }
            EncoderHead::Projected { module, .. } => {
                Some(ProjectionPlan { module, other: None, has_bias: Some(false) })
            }
            _ => None,
        };
        let field = match head {
            EncoderHead::Pooled(field) | EncoderHead::Projected { pooling: field, .. } => {
                Some(field)
            }
            head => head.class_head().map_or(Some(VECTORS_POOLING), |head| head.pooling),
        };
        let (sequence, pools_classes) = fields.pooling(field)?;
        let listwise = match head {
            EncoderHead::Listwise { layers, .. } => Some(layers),
            _ => None,
        };
        let is_of_tokens =
            matches!(head, EncoderHead::TokenVectors { .. } | EncoderHead::TokenStates);
        let projects_tokens_alone = is_of_tokens || listwise.is_some();
        Ok(Self {
            sequence,
            pools_classes,
            vocabulary,
            projection,
            projects_tokens_alone,
            listwise,
        })
    }

    /// Returns whether the class itself divides vectors by their lengths.
    pub(super) fn normalizes(&self) -> bool {
        match self.projection {
            Some(projection) => projection.has_bias != Some(false),
            None => self.projects_tokens_alone && self.listwise.is_none(),
        }
    }

    /// Returns the names of the tensors of projections, whose rows are known when they are loaded.
    pub(super) fn projections(&self) -> Vec<String> {
        let mut names = Vec::new();
        if let Some(ProjectionPlan { module, other, has_bias }) = self.projection {
            for module in iter::once(module).chain(other) {
                names.push(format!("{module}.weight"));
                names.extend((has_bias != Some(false)).then(|| format!("{module}.bias")));
            }
        }
        let layers = self.listwise.iter().flatten();
        names.extend(layers.map(|module| format!("{module}.weight")));
        names
    }

    /// Returns the tensors of the head of a masked language model, with their shapes: of hidden
    /// states of `width` elements, norms of `kind` and `vocab` tokens.
    pub(super) fn tensors(
        &self,
        width: usize,
        kind: NormKind,
        vocab: usize,
    ) -> Vec<(String, Vec<usize>)> {
        let Some(plan) = self.vocabulary else { return Vec::new() };
        let mut tensors = Vec::new();
        if let Some(LmTransformPlan { dense, has_bias, norm, .. }) = plan.transform {
            tensors.extend(tensors_of(dense, &[width, width], has_bias));
            tensors.extend(tensors_of(norm, &[width], kind.has_bias()));
        }
        if !plan.is_tied {
            tensors.extend(tensors_of(plan.decoder, &[vocab, width], false));
        }
        tensors.extend(plan.bias.map(|bias| (format!("{bias}.bias"), vec![vocab])));
        tensors
    }
}

impl LayerPlan {
    /// Returns the layer's tensors with their shapes.
    pub(super) fn tensors(self, width: usize, kind: NormKind) -> Vec<(String, Vec<usize>)> {
        match self {
            Self::Dense { module, has_bias, .. } => tensors_of(module, &[width, width], has_bias),
            Self::Norm { module } => tensors_of(module, &[width], kind.has_bias()),
        }
    }
}

/// Returns the tensors of a module with their shapes.
pub(super) fn tensors_of(
    module: &str,
    shape: &[usize],
    has_bias: bool,
) -> Vec<(String, Vec<usize>)> {
    let mut tensors = vec![(format!("{module}.weight"), shape.to_vec())];
    if has_bias {
        tensors.push((format!("{module}.bias"), shape[..1].to_vec()));
    }
    tensors
}

/// The fields of `config.json` that heads read.
#[derive(Clone, Copy)]
pub(super) struct HeadFields<'a> {
    /// The model's folder, for errors.
    pub(super) folder: &'a Path,
    pub(super) config: &'a Map<String, Value>,
    /// The function from logits to scores, by the files of sentence-transformers.
    pub(super) activation: Option<ClassifierActivation>,
}

impl HeadFields<'_> {
    /// Returns the layers before a classifier.
    pub(super) fn layers(self, modules: &[HeadModule]) -> Result<Vec<LayerPlan>, ModelError> {
        modules.iter().map(|module| self.layer(*module)).collect()
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.config.get(field).and_then(Value::as_str)
    }

    /// Returns the number above 0 in `field`, by default 1.
    pub(super) fn divisor(&self, field: &str) -> Result<f32, ModelError> {
        let value = self.config.get(field).unwrap_or(&Value::Null);
        let number = if value.is_null() { Some(1.0) } else { value.as_f64() };
        let number = number.map(|number| number as f32);
        let number = number.filter(|number| *number > 0.0 && number.is_finite());
        number.ok_or_else(|| self.invalid(field, "a number above 0"))
    }

    fn flag(&self, field: &str) -> Option<bool> {
        self.config.get(field).and_then(Value::as_bool)
    }

    fn invalid(&self, field: &str, expected: &str) -> ModelError {
        self.invalid_value(field, self.config.get(field).unwrap_or(&Value::Null), expected)
    }

    /// Returns the error of a field whose value is not supported.
    pub(super) fn invalid_value(&self, field: &str, value: &Value, expected: &str) -> ModelError {
        let value = value.to_string().chars().take(200).collect();
        let (path, expected) = (self.folder.join("config.json"), expected.to_owned());
        ConfigError::Invalid { path, field: field.to_owned(), value, expected }.into()
    }

    fn has_bias(&self, bias: Bias) -> bool {
        match bias {
            Bias::Never => false,
            Bias::Always => true,
            Bias::IfSet(field) => self.flag(field).unwrap_or(false),
            Bias::UnlessUnset(field) => self.flag(field).unwrap_or(true),
        }
    }

    /// Returns the name of an activation, and the field that it comes from.
    fn activation(&self, activation: HeadActivation) -> (&str, &'static str) {
        match activation {
            HeadActivation::Fixed(name) => (name, "hidden_act"),
            HeadActivation::Field(field, default) => (self.text(field).unwrap_or(default), field),
        }
    }

    fn layer(&self, module: HeadModule) -> Result<LayerPlan, ModelError> {
        match module {
            HeadModule::Norm { module } => Ok(LayerPlan::Norm { module }),
            HeadModule::Dense { module, bias, activation } => {
                let (name, field) = self.activation(activation);
                let activation = DenseActivation::from_name(name).ok_or_else(|| {
                    self.invalid(field, "linear, tanh, relu, gelu, gelu_new or silu")
                })?;
                Ok(LayerPlan::Dense { module, has_bias: self.has_bias(bias), activation })
            }
        }
    }

    fn masked_lm(&self, head: MaskedLmHead) -> Result<MaskedLmPlan, ModelError> {
        let MaskedLmHead { transform, decoder, bias: (bias, has_bias), is_tied } = head;
        let transform = transform.map(|LmTransform { dense, bias, activation, norm }| {
            let (name, field) = self.activation(activation);
            let activation = ActivationName::from_name(name);
            let activation = activation.filter(|name| *name != ActivationName::XIelu);
            let activation =
                activation.ok_or_else(|| self.invalid(field, "an activation of transformers"))?;
            let has_bias = self.has_bias(bias);
            Ok::<_, ModelError>(LmTransformPlan { dense, has_bias, activation, norm })
        });
        Ok(MaskedLmPlan {
            transform: transform.transpose()?,
            decoder,
            is_tied: self.flag("tie_word_embeddings").unwrap_or(is_tied),
            bias: self.has_bias(has_bias).then_some(bias),
        })
    }

    /// Returns the pooling that `field` names, and whether it pools classes of tokens. Without a
    /// field, it is the first token as in vLLM.
    fn pooling(&self, field: Option<PoolingField>) -> Result<(SequencePooling, bool), ModelError> {
        let Some(PoolingField { field, default, accepted }) = field else {
            return Ok((SequencePooling::Cls, false));
        };
        let name = self.text(field).unwrap_or(default);
        if !accepted.contains(&name) {
            let names: Vec<String> = accepted.iter().map(|name| format!("\"{name}\"")).collect();
            return Err(self.invalid(field, &names.join(" or ")));
        }
        Ok(match name {
            "mean" | "avg" => (SequencePooling::Mean, false),
            "last" => (SequencePooling::Last, false),
            "late" => (SequencePooling::Mean, true),
            _ => (SequencePooling::Cls, false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::families::encoders;

    #[test]
    fn projections_are_known_by_their_names() {
        let names = |name: &str| {
            let class = encoders::classes().find(|class| class.architecture == name).unwrap();
            let (folder, config) = (Path::new(""), Map::new());
            let fields = HeadFields { folder, config: &config, activation: None };
            EncoderPlan::new(fields, class.head, true).unwrap().projections()
        };
        assert_eq!(names("VoyageQwen3BidirectionalEmbedModel"), ["linear.weight"]);
        assert_eq!(names("JinaForRanking"), ["projector.0.weight", "projector.2.weight"]);
        assert!(names("BertModel").is_empty());
    }
}
