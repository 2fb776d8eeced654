//! The names of tensors: in a model's spelling, and in that of the checkpoint's files.

use std::borrow::Cow;

use super::{Checkpoint, GgufName, Layout, gguf};

/// Names of tensors, and those of checkpoints that were converted from TensorFlow, for example the
/// first ones of BERT. transformers renames them, too.
const OF_TENSORFLOW: [(&str, &str); 2] =
    [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")];

impl Checkpoint {
    /// Returns the same checkpoint for a model whose base is the module `base`. If no tensor is in
    /// that module, the checkpoint is one of the base alone, and its names lack the prefix.
    #[must_use]
    pub fn of_base_model(mut self, base: &'static str) -> Self {
        let is_in =
            |name: &String| name.strip_prefix(base).is_some_and(|rest| rest.starts_with('.'));
        let is_hugging_face = matches!(self.layout, Layout::HuggingFace(_));
        let has_base = self.file_of.keys().any(is_in);
        self.absent_base = (is_hugging_face && !base.is_empty() && !has_base).then_some(base);
        self
    }

    /// Returns the same checkpoint. Where its files have a tensor with the second part in its name,
    /// the model's names have the first one in its place.
    #[must_use]
    pub fn renamed(mut self, renamed: Option<(&'static str, &'static str)>) -> Self {
        let is_stored =
            |(_, stored): &(&str, &str)| self.file_of.keys().any(|name| name.contains(stored));
        self.renamed = renamed.filter(is_stored);
        self
    }

    /// Returns the same checkpoint for a model whose names differ from those of a GGUF file.
    #[must_use]
    pub fn with_gguf_names(mut self, gguf_name: Option<GgufName>) -> Self {
        self.gguf_name = gguf_name.filter(|_| self.is_gguf());
        self
    }

    /// Returns the names of all tensors in the model's spelling, except those of a GGUF file that
    /// are read together with its metadata.
    pub fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let is_gguf = self.is_gguf();
        let stored = self.file_of.keys().map(String::as_str);
        let to_load = stored.filter(move |name| {
            !(is_gguf && gguf::OF_METADATA.contains(name)
                || self.is_of_adapter(name)
                || self.is_beside_wrapped(name)
                || self.is_merged(name))
        });
        let absent_base = self.absent_base;
        to_load.map(move |name| {
            let name = match self.adapted_name(name) {
                Cow::Borrowed(name) => match self.unwrapped_name(name) {
                    Some(name) => Cow::Owned(name),
                    None => usual_name(name),
                },
                adapted => adapted,
            };
            match absent_base {
                Some(base) => Cow::Owned(format!("{base}.{name}")),
                None => name,
            }
        })
    }

    /// Returns the name of the tensor `name` in the file.
    pub fn stored_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.layout {
            Layout::HuggingFace(_) | Layout::Dummy(_) => {
                let base = self.absent_base.and_then(|base| name.strip_prefix(base));
                let name = base.and_then(|name| name.strip_prefix('.')).unwrap_or(name);
                if let Some((own, stored)) = self.renamed.filter(|(own, _)| name.contains(own)) {
                    return Cow::Owned(name.replacen(own, stored, 1));
                }
                let other = self.tensorflow_name(name).or_else(|| self.original_name(name));
                let other = other.or_else(|| self.wrapped_name(name));
                other.map_or(Cow::Borrowed(name), Cow::Owned)
            }
            Layout::Gguf => match self.gguf_name {
                Some(gguf_name) => Cow::Owned(gguf_name(name)),
                None => Cow::Borrowed(name),
            },
        }
    }

    /// Returns TensorFlow's name of a tensor, if the files have the tensor under it.
    fn tensorflow_name(&self, name: &str) -> Option<String> {
        let renamed = OF_TENSORFLOW.into_iter().find_map(|(usual, tensorflow)| {
            name.strip_suffix(usual).map(|module| format!("{module}{tensorflow}"))
        });
        renamed.filter(|name| self.file_of.contains_key(name))
    }
}

/// Returns today's name of a tensor.
fn usual_name(name: &str) -> Cow<'_, str> {
    let renamed = OF_TENSORFLOW.into_iter().find_map(|(usual, tensorflow)| {
        name.strip_suffix(tensorflow).map(|module| format!("{module}{usual}"))
    });
    renamed.map_or(Cow::Borrowed(name), Cow::Owned)
}
