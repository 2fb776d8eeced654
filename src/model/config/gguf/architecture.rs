//! The data of one architecture of llama.cpp: the model that its files hold, and the keys and rules
//! that are its own.

use serde_json::{Value, json};

use super::metadata::Metadata;
use crate::gguf::GgufError;
use crate::model::family::LayerNorms;

/// An architecture, by the name under `general.architecture`.
#[derive(Debug)]
pub(super) struct Architecture {
    pub(super) name: &'static str,
    /// The entry of `architectures` that config.json would have.
    pub(super) class: &'static str,
    /// Other entries: the first one whose key is present, with a number that is not less.
    pub(super) variants: &'static [Variant],
    /// Whether a rotary pair is two neighbours in the file (`llama_model_rope_type`). The converter
    /// interleaves the halves of heads where Hugging Face pairs them.
    pub(super) is_interleaved: bool,
    /// Whether the converter does so to whole heads of which the model rotates a part.
    pub(super) is_permuted_whole: bool,
    /// Whether the converter multiplies matrices by factors that no key has.
    pub(super) is_multiplied: bool,
    pub(super) layer_types: LayerTypes,
    /// The module of the layers.
    pub(super) layers: &'static str,
    /// The names of norms. A model has those of its class.
    pub(super) norms: LayerNorms,
    /// The values that llama.cpp has in its code, where config.json has a field.
    pub(super) constants: &'static [(&'static str, Constant)],
    /// Keys beside those of every architecture.
    pub(super) keys: &'static [Key],
    /// Reads what no key says in this form.
    pub(super) adjust: fn(&mut Metadata<'_>) -> Result<(), GgufError>,
}

/// How a file tells the types of layers, where the config has a list of them.
#[derive(Debug, Clone, Copy)]
pub(super) enum LayerTypes {
    /// By no list, or by one of another kind.
    Other,
    /// By the number of key heads: the types of layers without, and of those with some.
    KeyHeads([&'static str; 2]),
    /// Each layer is one part. Those without key heads and without a feed-forward width carry a
    /// state. Those with a width have this type.
    Parts(&'static str),
    /// Each has its own numbers of heads, and its own width. A layer with 0 lacks the part.
    Blocks,
    /// By the list of windows. Layers without one have heads of their own.
    Windows,
}

/// Another class that an architecture may stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    pub(super) key: &'static str,
    /// The least number under the key. A flag counts as 1 or 0.
    pub(super) least: u64,
    /// The end of the name of a tensor that stands for the key in files without it.
    pub(super) tensor: Option<&'static str>,
    pub(super) class: &'static str,
}

impl Variant {
    /// Returns the class of files that have `key`, unless its number is 0.
    pub(super) const fn with(key: &'static str, class: &'static str) -> Self {
        Self { key, least: 1, tensor: None, class }
    }
}

/// The value of a field that no key has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Constant {
    Flag(bool),
    Count(u64),
    /// Whether the file has this tensor.
    HasTensor(&'static str),
    /// Whether a layer of the file has this tensor.
    HasTensorIn(&'static str),
    /// Whether the file lacks this tensor.
    LacksTensor(&'static str),
    /// One number where the file has this tensor, and another where it has not.
    ByTensor(&'static str, u64, u64),
}

/// A key of the metadata, without the architecture's name, and the field of `config.json` that has
/// its value. The name of a nested field has dots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) field: &'static str,
    pub(super) form: Form,
}

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A number. 0 means that the model has none.
    Number,
    /// An integer, or a list of the same integer for each layer.
    Integer,
    Flag,
    /// A sliding window, with the pattern of its layers. 0 and absence mean that there is none.
    Window,
    /// The same. Absence means the default of the class.
    WindowOrDefault,
    /// A number that must be equal to the value of another key, the field.
    EqualTo,
    /// llama.cpp does not read it either.
    Unused,
}

impl Key {
    pub(super) const fn number(name: &'static str, field: &'static str) -> Self {
        Self { name, field, form: Form::Number }
    }

    pub(super) const fn integer(name: &'static str, field: &'static str) -> Self {
        Self { name, field, form: Form::Integer }
    }

    pub(super) const fn flag(name: &'static str, field: &'static str) -> Self {
        Self { name, field, form: Form::Flag }
    }

    pub(super) const fn equal(name: &'static str, other: &'static str) -> Self {
        Self { name, field: other, form: Form::EqualTo }
    }
}

/// The window of models that have one in some files only.
pub(super) const WINDOW: Key =
    Key { name: "attention.sliding_window", field: "sliding_window", form: Form::Window };

/// The window of models that always have one.
pub(super) const ALWAYS_WINDOW: Key =
    Key { name: "attention.sliding_window", field: "sliding_window", form: Form::WindowOrDefault };

/// A base of wavelengths for layers with a window, in models that have one base for all layers.
pub(super) const SAME_BASE: Key = Key::equal("rope.freq_base_swa", "rope.freq_base");

impl Constant {
    pub(super) fn value(self, metadata: &Metadata<'_>) -> Value {
        let has = |name: &str| metadata.file.tensor(name).is_some();
        match self {
            Self::Flag(flag) => flag.into(),
            Self::Count(count) => count.into(),
            Self::HasTensor(name) => has(name).into(),
            Self::HasTensorIn(end) => {
                let mut names = metadata.file.tensors().filter_map(|(name, _)| {
                    let (_, name) = name.strip_prefix("blk.")?.split_once('.')?;
                    Some(name)
                });
                names.any(|name| name == end).into()
            }
            Self::LacksTensor(name) => (!has(name)).into(),
            Self::ByTensor(name, with, without) => json!(if has(name) { with } else { without }),
        }
    }
}
