//! The names of tensors: in a model's spelling, and in that of the checkpoint's files.

use std::borrow::Cow;

use super::{Checkpoint, Layout, gguf};

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

    /// Returns the names of all tensors in the model's spelling, except those of a GGUF file that
    /// are read together with its metadata.
    pub fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let is_gguf = self.is_gguf();
        let stored = self.file_of.keys().map(String::as_str);
        let to_load = stored.filter(move |name| !(is_gguf && gguf::OF_METADATA.contains(name)));
        let absent_base = self.absent_base;
        to_load.map(move |name| match absent_base {
            Some(base) => Cow::Owned(format!("{base}.{name}")),
            None => Cow::Borrowed(name),
        })
    }

    /// Returns the name of the tensor `name` in the file.
    pub fn stored_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.layout {
            Layout::HuggingFace(_) | Layout::Dummy(_) => {
                let base = self.absent_base.and_then(|base| name.strip_prefix(base));
                Cow::Borrowed(base.and_then(|name| name.strip_prefix('.')).unwrap_or(name))
            }
            Layout::Gguf => Cow::Borrowed(name),
        }
    }
}
