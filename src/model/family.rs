//! The differences between model families, as data. All other facts come from `config.json`.

mod latent;
mod moe;

use std::borrow::Cow;

pub(crate) use self::latent::{KvNames, LatentNames, LatentRule};
pub(crate) use self::moe::{ExpertNames, MoeNames};
use super::config::{ConfigError, Fields, LayerConfig, MixerKind, ModelConfig, WindowRule};

/// A family of decoder models: its rules for settings that `config.json` does not have, and its
/// weight names.
#[derive(Debug)]
pub(crate) struct Family {
    /// Its entry in `architectures`.
    pub(crate) architecture: &'static str,
    /// Its `model_type`, by which transformers finds the config class.
    pub(crate) model_type: &'static str,
    /// The `model_type` of models that other code made of this class.
    pub(crate) other_model_types: &'static [&'static str],
    /// Its published models.
    pub(crate) models: &'static str,
    /// Fields that other families refuse, and that change nothing in this one.
    pub(crate) harmless_fields: &'static [&'static str],
    /// Fields whose names are its own: pairs of that name and the name in most families.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// The HF config class's defaults for fields that are absent from `config.json`.
    pub(crate) defaults: Defaults,
    /// Biases of the q, k and v projections.
    pub(crate) qkv_bias: Bias,
    /// Bias of the attention's output projection.
    pub(crate) o_bias: Bias,
    /// Biases of the MLP's projections.
    pub(crate) mlp_bias: Bias,
    /// The rule for the layers that have a sliding window.
    pub(crate) windows: WindowRule,
    /// The latent attention, in families that have it in place of grouped-query attention.
    pub(crate) latent: Option<&'static LatentRule>,
    /// The norm of hidden states.
    pub(crate) norm: NormRule,
    /// The norm of query and key heads, if [`AttentionNames`] has names for it.
    pub(crate) head_norm: HeadNormRule,
    /// The encoding of positions.
    pub(crate) positions: PositionRule,
    /// The fields of rotary embeddings.
    pub(crate) rope: RopeRule,
    /// The feed-forward part.
    pub(crate) mlp: MlpRule,
    /// Whether attention and the feed-forward part read the same hidden state.
    pub(crate) is_parallel: bool,
    /// How its layers are read.
    pub(crate) layers: LayerRule,
    /// The kinds of mixers that its layers may have.
    pub(crate) mixers: &'static [MixerKind],
    /// The names of its tensors.
    pub(crate) names: WeightNames,
    /// The names of its tensors in other checkpoints: those without one of the first layer's output
    /// projections by its usual name. If they have norms of heads, so has the model.
    pub(crate) other_names: Option<&'static WeightNames>,
    /// The form of the layer that predicts several tokens a step.
    pub(crate) mtp: MtpForm,
    /// Reads the fields that only this family has, and rejects those that are not supported.
    pub(crate) adjust: Adjust,
}

/// Where a checkpoint has the layer that predicts several tokens a step, and what its state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MtpForm {
    /// After the last layer. The state is the layer's output, and its norm is for the logits alone.
    After,
    /// As `After`, but the state is the norm of the layer's output.
    AfterWithNorm,
    /// In the module `mtp`, with full attention. The state is the norm of the layer's output.
    Beside,
    /// As `Beside`, with the first layer's window, rotations, and no experts.
    BesideDense,
    /// The first of the modules `model.mtp_layers`. The state is the norm of the layer's output.
    Listed,
    /// The first of the modules `model.mtp_block`, without experts. The state has the model's norm.
    Block,
    /// In the module `mtp`, whose layers are parts: attention, and experts. The state is the norm
    /// of the last one's output.
    Parts,
    /// In the module `model.mtp`, without experts. The state is the norm of the layer's output.
    InModel,
    /// In modules that are not read.
    Unread,
}

/// How a family's layers are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LayerRule {
    /// All have attention, and the same feed-forward part.
    Alike,
    /// By the family's own fields.
    Own(ReadLayers),
}

/// Reads the layers of a family, first layer first. The last argument is the default of
/// `max_position_embeddings`, or the field.
pub(crate) type ReadLayers = fn(&Fields, &Family, usize) -> Result<Vec<LayerConfig>, ConfigError>;

/// Completes the config of a family from its own fields.
pub(crate) type Adjust = fn(&Fields, &mut ModelConfig) -> Result<(), ConfigError>;

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.architecture == other.architecture
    }
}

impl Family {
    /// Returns whether models of this family may have this `model_type`.
    pub(crate) fn has_model_type(&self, model_type: &str) -> bool {
        self.model_type == model_type || self.other_model_types.contains(&model_type)
    }
}

/// Defaults that differ between the HF config classes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    /// Key and value heads. `None`: as many as query heads.
    pub(crate) num_key_value_heads: Option<usize>,
    /// The width of a head. `None`: `hidden_size / num_attention_heads`.
    pub(crate) head_dim: Option<usize>,
    /// The inner width of feed-forward parts. `None`: the field is required, or follows from
    /// another one.
    pub(crate) intermediate_size: Option<usize>,
    pub(crate) max_position_embeddings: usize,
    pub(crate) tie_word_embeddings: bool,
    pub(crate) rope_theta: f64,
    pub(crate) norm_eps: f64,
}

/// Whether a projection has a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bias {
    Never,
    Always,
    /// If this boolean of `config.json` is true.
    IfSet(&'static str),
    /// Unless this boolean of `config.json` is false.
    UnlessUnset(&'static str),
}

/// The norm of hidden states, and the field that has the number added to its variance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormRule {
    pub(crate) kind: NormKind,
    pub(crate) eps: &'static str,
}

/// The formula of a norm over hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// `x / rms(x) · weight`.
    Rms,
    /// `x / rms(x) · (1 + weight)`: HF `GemmaRMSNorm`.
    RmsPlusOne,
    /// `x / rms(x)`: HF `NanoChatRMSNorm`.
    RmsUnweighted,
    /// `x / ‖x‖`: HF `DoryL2Norm`. The addend is one of the sum of squares.
    Length,
    /// `(x - mean) / std(x) · weight + bias`.
    Layer { has_bias: bool },
    /// `(x - mean) / std(x) · (1 + weight) + bias`: HF `NemotronLayerNorm1P`.
    LayerPlusOne,
    /// `(x - mean) / std(x)`: HF `OlmoLayerNorm`.
    LayerUnweighted,
}

impl NormKind {
    /// Returns whether a norm has a weight.
    pub(crate) fn has_weight(self) -> bool {
        !matches!(self, Self::RmsUnweighted | Self::Length | Self::LayerUnweighted)
    }

    /// Returns the norm within a part of a layer: an RMS norm with a weight, unless all norms are
    /// those of lengths.
    pub(crate) fn of_parts(self) -> Self {
        if self == Self::Length { self } else { Self::Rms }
    }

    /// Returns whether a norm has a bias beside its weight.
    pub(crate) fn has_bias(self) -> bool {
        match self {
            Self::Rms
            | Self::RmsPlusOne
            | Self::RmsUnweighted
            | Self::Length
            | Self::LayerUnweighted => false,
            Self::Layer { has_bias } => has_bias,
            Self::LayerPlusOne => true,
        }
    }
}

/// The norm of query and key heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNormRule {
    /// An RMS norm over each head. All heads share its weight.
    Rms,
    /// The same, with the weight plus one.
    RmsPlusOne,
    /// An RMS norm over all heads of a token together.
    RmsAcrossHeads,
    /// A layer norm over each head. All heads share its weight and its bias.
    LayerBiased,
    /// A layer norm over each head, each with its own row of one weight.
    Layer,
    /// The same, with a module for each head: `{name}.norms.{head}`.
    LayerByHead,
    /// A layer norm with a bias over all heads of a token together.
    LayerAcrossHeads,
    /// An RMS norm over each head, without a weight.
    Unit,
}

/// The encoding of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PositionRule {
    /// Rotary embeddings.
    Rotary {
        /// Whether a pair is two neighbours. Otherwise it is an element of each half of the head.
        is_interleaved: bool,
        /// The default part of a head that rotates, in percent.
        percent: u32,
    },
    /// None, or one that [`Family::adjust`] sets.
    None,
    /// Learned positions that begin behind the row of the padding token: HF `RobertaEmbeddings`.
    AfterPadding,
    /// Learned positions that begin behind so many rows: HF `MPNetEmbeddings`.
    AfterRows(usize),
}

impl PositionRule {
    /// Returns the number of rows of the table of positions, from the first one, that no position
    /// has.
    pub(crate) fn unused_rows(self, config: &Fields) -> Result<usize, ConfigError> {
        match self {
            Self::Rotary { .. } | Self::None => Ok(0),
            Self::AfterRows(rows) => Ok(rows),
            // The class's default is 1.
            Self::AfterPadding => Ok(config.count("pad_token_id")?.unwrap_or(1) + 1),
        }
    }
}

/// The fields of rotary embeddings, and the ways in which HF config classes read them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RopeRule {
    /// The field of the base, beside the object of parameters.
    pub(crate) theta: &'static str,
    /// The part of a head that rotates.
    pub(crate) part: RotaryPart,
    /// The parameters of layers with a sliding window, in families in which each kind of layer has
    /// its own.
    pub(crate) sliding: Option<SlidingRope>,
    /// In families whose only scaling is LongRoPE, the default of
    /// `original_max_position_embeddings`, which has precedence over the parameters.
    pub(crate) longrope: Option<usize>,
    /// How positions of media have several axes (`rope_type` "mrope", `mrope_section`). A token of
    /// text has the same position on all axes.
    pub(crate) axes: AxesRule,
}

/// The pairs of a head that turn with each axis of a position: frames, rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AxesRule {
    /// Positions have one axis.
    None,
    /// The pairs of an axis follow each other, in the order of the axes: HF
    /// `apply_multimodal_rotary_pos_emb`.
    InSections,
    /// The axes take turns, and the pairs that rows and columns leave are those of frames: HF
    /// `Qwen3VLTextRotaryEmbedding.apply_interleaved_mrope`.
    InTurns,
}

/// The part of a head that rotates, if `partial_rotary_factor` names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RotaryPart {
    /// The whole head. HF's class has no other part, so one is refused.
    Whole,
    /// The whole head. With `rope_type` "proportional", that part of its pairs turns, and the
    /// others stand still.
    Proportional,
    /// Those elements, rounded down to a whole number.
    Field {
        /// The field beside the object of parameters, if the class reads one.
        name: Option<&'static str>,
        /// Whether an odd number of elements is rounded up to an even one.
        rounds_up: bool,
    },
}

/// The rotary embedding of layers with a sliding window: HF
/// `Gemma3TextConfig.convert_rope_params_to_dict`. Scaling outside of the parameters of a kind of
/// layer is that of the other layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlidingRope {
    /// The field of the base, beside the object of parameters.
    pub(crate) theta: Option<&'static str>,
    /// The base without a field.
    pub(crate) default: f64,
}

/// The feed-forward part: its form, and its default activation by the name in transformers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MlpRule {
    /// Whether the activated half of the inner projection gates the other half.
    pub(crate) is_gated: bool,
    /// The field of the activation.
    pub(crate) field: &'static str,
    /// The activation without that field.
    pub(crate) activation: &'static str,
}

/// Names of modules in the checkpoint, to which `.weight` and `.bias` are appended. Names of a
/// layer's modules are relative to `{layer}.{index}.`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WeightNames {
    pub(crate) embed_tokens: &'static str,
    /// The table of learned positions, in families that have one.
    pub(crate) embed_positions: &'static str,
    /// The norm of embeddings, in families that have one.
    pub(crate) embed_norm: &'static str,
    pub(crate) layer: &'static str,
    pub(crate) norms: LayerNorms,
    pub(crate) attention: AttentionNames,
    /// The norm of the sum of the residual stream and the output of attention, in families that add
    /// the stream to that norm once more.
    pub(crate) attention_norm: Option<&'static str>,
    pub(crate) mlp: MlpNames,
    pub(crate) moe: MoeNames,
    /// The module of the state-space model, in families that have one.
    pub(crate) mamba: &'static str,
    pub(crate) norm: &'static str,
    pub(crate) lm_head: &'static str,
    /// Whether matrices of the layers are stored as `[inputs, outputs]`: HF `Conv1D`.
    pub(crate) is_transposed: bool,
    /// Whether the module of both inner projections has the gate behind the other projection.
    pub(crate) is_gate_last: bool,
    /// Whether two layers are one in the checkpoint: HF `LongcatFlashDecoderLayer`. The name of a
    /// module then has the place of its layer, 0 or 1, behind its first part. Modules in `mlp`
    /// belong to both.
    pub(crate) layers_are_pairs: bool,
    /// Parts of the names of modules that differ between transformers 5, and so adapters, and the
    /// checkpoint. Before names are compared, the first part of a pair becomes the second one.
    pub(crate) in_adapters: &'static [(&'static str, &'static str)],
    /// Modules and tensors whose names are not data, and their names in other files.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
    /// The modules that hold the text model. `None`: the names are those of the checkpoint.
    pub(crate) place: Option<TextPlace>,
}

/// The modules of a multimodal checkpoint that hold the text model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextPlace {
    /// The module that holds all but the output layer: `model` in a checkpoint of text alone.
    pub(crate) base: &'static str,
    /// The output layer.
    pub(crate) lm_head: &'static str,
}

impl TextPlace {
    /// The names of transformers 5, and 4 from 4.52 on.
    pub(crate) const INSIDE: Self = Self { base: "model.language_model", lm_head: "lm_head" };

    /// The names within a model of late interaction: those of transformers 5, and of 4.
    pub(crate) const OF_RETRIEVAL: [Self; 3] = [
        Self { base: "vlm.language_model", lm_head: "vlm.lm_head" },
        Self { base: "vlm.model.language_model", lm_head: "vlm.lm_head" },
        Self { base: "vlm.model", lm_head: "vlm.lm_head" },
    ];
}

/// The norms of a layer. A layer has those that have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerNorms {
    pub(crate) before_attention: Option<&'static str>,
    /// Over the output of attention.
    pub(crate) after_attention: Option<&'static str>,
    pub(crate) before_mlp: Option<&'static str>,
    /// Over the output of the feed-forward part.
    pub(crate) after_mlp: Option<&'static str>,
}

/// Names of the modules of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionNames {
    pub(crate) qkv: QkvNames,
    /// Norms of each query and key head, in families that have them.
    pub(crate) q_norm: Option<&'static str>,
    pub(crate) k_norm: Option<&'static str>,
    pub(crate) o_proj: &'static str,
}

/// The modules of the q, k and v projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkvNames {
    /// One module each.
    Separate([&'static str; 3]),
    /// One module: all queries, then all keys, then all values.
    Stacked(&'static str),
    /// One module: for each key head its queries, its key and its value.
    Grouped(&'static str),
    /// One module of four parts. Each has a quarter of the queries, then of the values, then of the
    /// keys.
    Sharded(&'static str),
    /// One module of queries, and one of keys and values: for each key head its key and its value.
    KeyValues { queries: &'static str, key_values: &'static str },
    /// One module each, and one of the gates of the output.
    Gated { qkv: [&'static str; 3], gate: &'static str },
}

/// Names of the modules of the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MlpNames {
    /// The projections to the inner width: the gate and what it gates, one module of both, or the
    /// only projection of a part without a gate.
    pub(crate) inner: &'static [&'static str],
    pub(crate) down_proj: &'static str,
}

impl WeightNames {
    /// Returns the module that holds all but the output layer: HF `base_model_prefix`.
    pub(crate) fn base(&self) -> &'static str {
        self.embed_tokens.split('.').next().unwrap_or_default()
    }

    /// Returns the names of a text model at `place` of a multimodal checkpoint.
    pub(crate) fn in_place(self, place: TextPlace) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Returns the name that the checkpoint has for a module outside of layers.
    pub(crate) fn stored<'n>(&self, module: &'n str) -> Cow<'n, str> {
        let module = self.renamed(module);
        let Some(TextPlace { base, lm_head }) = self.place else { return Cow::Borrowed(module) };
        if module == self.lm_head {
            return Cow::Borrowed(lm_head);
        }
        match module.strip_prefix(self.base()) {
            Some(rest) => Cow::Owned(format!("{base}{rest}")),
            None => Cow::Borrowed(module),
        }
    }

    fn renamed<'n>(&self, name: &'n str) -> &'n str {
        self.renamed.iter().find(|(known, _)| *known == name).map_or(name, |(_, other)| other)
    }

    /// Returns the full name of the module `name` of layer `index`.
    pub(crate) fn of_layer(&self, index: usize, name: &str) -> String {
        let (name, layers) = (self.renamed(name), self.stored(self.layer));
        if !self.layers_are_pairs {
            return format!("{layers}.{index}.{name}");
        }
        let (pair, place) = (index / 2, index % 2);
        match name.split_once('.') {
            Some(("mlp", _)) => format!("{layers}.{pair}.{name}"),
            Some((module, rest)) => format!("{layers}.{pair}.{module}.{place}.{rest}"),
            None => format!("{layers}.{pair}.{name}.{place}"),
        }
    }
}

/// Adjusts nothing.
pub(crate) fn as_read(_: &Fields, _: &mut ModelConfig) -> Result<(), ConfigError> {
    Ok(())
}
