//! Multimodal classes whose text model is of a family of this crate. The tensors of the other parts
//! are known by their names. [`vision`](super::vision) reads those of towers that it knows.

use std::borrow::Cow;

use super::audio::SoundTower;
use super::config::{FeedForward, ModelConfig, Tie};
use super::family::{ExpertNames, Family, TextPlace};
use super::vision::VisionFamily;
use crate::weights::Checkpoint;

/// A multimodal class: HF `…ForConditionalGeneration`.
#[derive(Debug)]
pub(crate) struct Wrapper {
    /// Its entry in `architectures`.
    pub(crate) architecture: &'static str,
    /// Its `model_type`.
    pub(crate) model_type: &'static str,
    /// Its published models.
    pub(crate) models: &'static str,
    /// The classes that its text model may have. `model_type` of `text_config` names one. The first
    /// is the default.
    pub(crate) texts: &'static [TextModel],
    /// Whether published configs have the fields of the text model beside those of other parts,
    /// without an object `text_config`.
    pub(crate) may_be_flat: bool,
    /// The places of the text model in checkpoints of different versions of transformers.
    pub(crate) places: &'static [TextPlace],
    /// The modules of all other parts.
    pub(crate) unread: &'static [&'static str],
    /// The towers of its images that are served. `model_type` of `vision_config` names one of
    /// several. The first is the default.
    pub(crate) vision: &'static [VisionFamily],
    /// The tower of its sounds, if it is served.
    pub(crate) audio: Option<SoundTower>,
}

/// The text model of a multimodal class.
#[derive(Debug)]
pub(crate) struct TextModel {
    /// Its rules. Its `architecture` is that of the multimodal class.
    pub(crate) family: Family,
    /// The sizes that the HF config class has where `text_config` has none.
    pub(crate) sizes: TextSizes,
    /// The names of experts in checkpoints of different versions of transformers.
    pub(crate) experts: &'static [ExpertNames],
}

/// The default sizes of a text model. Published configs rely on them: the 4B of Gemma 3 has no
/// `vocab_size`, LLaVA 1.5 has no `hidden_size`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextSizes {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
}

/// The multimodal class of a model, and the class of its text model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wrapped {
    pub(crate) wrapper: &'static Wrapper,
    pub(crate) text: &'static TextModel,
    /// The source of the output layer by the config.
    pub(crate) tie: Tie,
}

impl PartialEq for Wrapper {
    fn eq(&self, other: &Self) -> bool {
        self.architecture == other.architecture
    }
}

impl PartialEq for TextModel {
    fn eq(&self, other: &Self) -> bool {
        self.family == other.family && self.family.model_type == other.family.model_type
    }
}

impl Wrapper {
    /// Returns the name of the class with a classifier in the place of the output layer, if images
    /// are served. transformers has few of these classes, and vLLM makes all.
    pub(crate) fn classifier(&self) -> Option<String> {
        let name = self.architecture.strip_suffix("ForConditionalGeneration")?;
        (!self.vision.is_empty()).then(|| format!("{name}ForSequenceClassification"))
    }

    /// Returns whether a tower for media is served.
    pub(crate) fn takes_media(&self) -> bool {
        !self.vision.is_empty() || self.audio.is_some()
    }

    /// Returns whether the layers of its checkpoints may be those of PEFT.
    pub(crate) fn may_be_wrapped(&self) -> bool {
        self.vision.iter().any(|family| family.hears())
    }

    /// Returns whether a tensor belongs to another part than the text model.
    pub(crate) fn is_unread(&self, name: &str) -> bool {
        self.unread.iter().any(|module| is_in(name, module))
    }
}

impl Wrapped {
    /// Sets in `config` what the checkpoint decides: the place of the text model, the names of
    /// experts, and whether the output layer is the embedding.
    pub(crate) fn fit(&self, config: &mut ModelConfig, checkpoint: &Checkpoint) {
        let stored: Vec<Cow<'_, str>> = checkpoint.names().collect();
        let has = |module: &str| stored.iter().any(|name| is_in(name, module));
        let names = config.names;
        let holds_text =
            |place: &&TextPlace| has(&names.in_place(**place).stored(names.embed_tokens));
        let place = self.wrapper.places.iter().find(holds_text);
        config.names.place = place.or(self.wrapper.places.first()).copied();
        if !stored.is_empty() {
            self.fit_experts(config, checkpoint, has);
        }
        if self.tie == Tie::AsStored && config.num_unscored == 0 {
            let head = config.names.stored(config.names.lm_head).into_owned();
            let [head_weight, table] = [&*head, &config.names.stored(config.names.embed_tokens)]
                .map(|module| format!("{module}.weight"));
            config.tie_word_embeddings = !has(&head) || checkpoint.are_equal(&head_weight, &table);
        }
    }

    /// Sets the names of experts to those that the checkpoint has. Names that are alike have
    /// different shapes.
    fn fit_experts(
        &self,
        config: &mut ModelConfig,
        checkpoint: &Checkpoint,
        has: impl Fn(&str) -> bool,
    ) {
        let layers = config.layers.iter().enumerate();
        let mut experts = layers.filter_map(|(index, layer)| match &layer.feed_forward {
            FeedForward::Moe(moe) => Some((index, moe)),
            FeedForward::Mlp(_) | FeedForward::None => None,
        });
        let Some((layer, moe)) = experts.next() else { return };
        let (count, inputs) = (moe.num_experts, moe.width(config.hidden_size));
        let outputs = moe.intermediate_size;
        let inner_outputs = if moe.is_gated { 2 * outputs } else { outputs };
        let has_shape = |name: &str, shape: [usize; 3]| {
            checkpoint.require_shape(&config.names.of_layer(layer, name), &shape).is_ok()
        };
        let is_stored = |experts: &&ExpertNames| match **experts {
            ExpertNames::Each { module, .. } => {
                has(&config.names.of_layer(layer, &format!("{module}.0")))
            }
            ExpertNames::Stacked { down_proj, .. } => has(&config.names.of_layer(layer, down_proj)),
            ExpertNames::Fused { inner, down_proj, .. } => {
                has_shape(inner, [count, inputs, inner_outputs])
                    && has_shape(down_proj, [count, outputs, inputs])
            }
            ExpertNames::FusedByOutput { inner, down_proj } => {
                has_shape(inner, [count, inner_outputs, inputs])
                    && has_shape(down_proj, [count, inputs, outputs])
            }
            ExpertNames::Rows { down_proj, .. } => has(&config.names.of_layer(layer, down_proj)),
        };
        if let Some(names) = self.text.experts.iter().find(is_stored) {
            config.names.moe.experts = *names;
        }
    }
}

/// Returns whether `name` is `module`, or a name in it.
fn is_in(name: &str, module: &str) -> bool {
    name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
