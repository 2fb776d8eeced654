//! The layers of a model that adapters may change.

use std::borrow::Cow;
use std::collections::BTreeMap;

use burn::tensor::Device;
use playhouse_kernels::WeightDtype;

use super::classifier::ClassifierSite;
use super::experts::ExpertSites;
use crate::model::layers::{Arrangement, Part};

/// Components that different versions of transformers put before the names of layers.
const OUTER: [&str; 3] = ["model", "language_model", "transformer"];

/// The index of a site in its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct SiteId(pub(super) usize);

/// The index of a layer's experts among those of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct ExpertsId(pub(super) usize);

/// A linear layer: the modules that are stacked in it, and the width of its input.
#[derive(Debug, Clone)]
pub(in crate::model) struct Site {
    pub(in crate::model) parts: Vec<Part>,
    /// The same outputs by the modules of another form of the checkpoint; empty without one.
    pub(super) also: Vec<Part>,
    pub(in crate::model) inputs: usize,
    /// Whether the layer multiplies with the transposed matrix of its only part.
    pub(super) turned: Option<Turned>,
    /// Whether it is a product of an expert: those of all experts are packed together.
    pub(super) is_of_expert: bool,
}

/// A layer of a transposed matrix `[outputs, inputs]`: it maps `outputs` elements to `inputs`. Each
/// side may have further elements behind these, which it leaves alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turned {
    pub(super) further: usize,
}

/// A matrix of `[vocab, width]` that an adapter may replace as a whole.
#[derive(Debug, Clone)]
pub(super) struct Replaceable {
    pub(super) module: String,
    pub(super) shape: [usize; 2],
    pub(super) has_bias: bool,
}

/// The layers of a model that adapters may change. A model of another crate has none by default.
#[derive(Debug, Clone, Default)]
pub struct AdapterSites {
    pub(super) sites: Vec<Site>,
    pub(super) embedding: Option<Replaceable>,
    pub(super) lm_head: Option<Replaceable>,
    pub(super) classifier: Option<ClassifierSite>,
    /// The experts of each layer whose experts take adapters.
    pub(super) experts: Vec<ExpertSites>,
    /// The modules with linear layers that take no adapter.
    pub(super) closed: Vec<String>,
    /// The modules with linear layers of the checkpoint that no result depends on.
    pub(super) unused: Vec<String>,
    /// The modules beside the text model of a multimodal class, which no adapter changes.
    other_parts: &'static [&'static str],
    /// The module that holds all but the head: HF `base_model_prefix`. An adapter that was trained
    /// on it alone has names without it.
    pub(super) base: &'static str,
    /// Parts of names that differ between adapters and the checkpoint. The first one of a pair
    /// becomes the second one.
    pub(super) parts_of_names: &'static [(&'static str, &'static str)],
    /// Modules of linear layers as adapters know them, by the first name of a layer in a file that
    /// has other names.
    pub(super) names: BTreeMap<String, Vec<Part>>,
    /// Modules of linear layers in another form of the checkpoint, which adapters may know, too.
    other_names: BTreeMap<String, Vec<Part>>,
    /// The reason why no adapter fits the model, if there is one.
    refused: Option<&'static str>,
    /// The type and the place of the model's weights.
    pub(super) kept: Option<(WeightDtype, Device)>,
}

impl AdapterSites {
    /// Returns no sites yet, of a model with weights of this type on this device.
    pub(in crate::model) fn new(dtype: WeightDtype, device: &Device) -> Self {
        Self { kept: Some((dtype, device.clone())), ..Self::default() }
    }

    /// Registers a layer.
    pub(in crate::model) fn add(&mut self, parts: &[Part], inputs: usize) -> SiteId {
        let other = parts.first().and_then(|first| self.other_names.get(&first.unique_name()));
        let also = other.cloned().unwrap_or_default();
        let parts = self.known(parts);
        self.push(Site { parts, also, inputs, turned: None, is_of_expert: false })
    }

    /// Registers a layer of one expert. A matrix of a parameter of all experts has a name that no
    /// adapter has for a module: see [`AdapterSites::add_experts`].
    pub(in crate::model) fn add_expert(&mut self, parts: &[Part], inputs: usize) -> SiteId {
        let apart = |part: Part| match part.arrangement {
            Arrangement::Slice { .. }
            | Arrangement::Fused { .. }
            | Arrangement::FusedByOutput { .. }
            | Arrangement::Below { .. } => part.apart(),
            _ => part,
        };
        let parts = self.known(parts).into_iter().map(apart).collect();
        self.push(Site { parts, also: Vec::new(), inputs, turned: None, is_of_expert: true })
    }

    /// Registers a layer that multiplies with the transposed matrix of `part`, `[outputs, inputs]`.
    /// Its inputs and outputs have `further` elements behind those of the matrix.
    pub(in crate::model) fn add_turned(
        &mut self,
        part: Part,
        inputs: usize,
        further: usize,
    ) -> SiteId {
        let (turned, also) = (Some(Turned { further }), Vec::new());
        self.push(Site { parts: vec![part], also, inputs, turned, is_of_expert: false })
    }

    fn push(&mut self, site: Site) -> SiteId {
        self.sites.push(site);
        SiteId(self.sites.len() - 1)
    }

    /// Registers modules that take no adapter.
    pub(in crate::model) fn close(&mut self, parts: &[Part]) {
        let known = self.known(parts);
        self.closed.extend(known.into_iter().map(|part| part.module));
    }

    /// Registers a module that no result depends on. An adapter may change it.
    pub(in crate::model) fn add_unused(&mut self, module: String) {
        self.unused.push(module);
    }

    /// Sets the modules beside the text model of a multimodal class.
    pub(in crate::model) fn set_other_parts(&mut self, modules: &'static [&'static str]) {
        self.other_parts = modules;
    }

    /// Sets the names that adapters have for the modules of linear layers: pairs of the modules in
    /// the file, and of those with the same outputs that adapters know.
    pub(in crate::model) fn set_names(&mut self, pairs: &[[Vec<Part>; 2]]) {
        for [stored, known] in pairs {
            if let Some(first) = stored.first() {
                self.names.insert(first.unique_name(), known.clone());
            }
        }
    }

    /// Sets the names that adapters may have for the modules of linear layers beside their own:
    /// pairs of the modules in the file, and of those with the same outputs in another form of it.
    pub(in crate::model) fn set_other_names(&mut self, pairs: &[[Vec<Part>; 2]]) {
        for [stored, other] in pairs {
            let is_another = |(one, other): (&Part, &Part)| one.module != other.module;
            if let Some(first) = stored.first()
                && stored.iter().zip(other).all(is_another)
            {
                self.other_names.insert(first.unique_name(), other.clone());
            }
        }
    }

    /// Returns the modules of a layer as adapters know them.
    fn known(&self, parts: &[Part]) -> Vec<Part> {
        let known = parts.first().and_then(|first| self.names.get(&first.unique_name()));
        known.map_or_else(|| parts.to_vec(), Vec::clone)
    }

    /// Returns a module that is a layer by itself as adapters know it.
    fn known_module(&self, module: &str) -> String {
        let known = self.names.get(module).and_then(|parts| parts.first());
        known.map_or_else(|| module.to_owned(), |part| part.module.clone())
    }

    /// Refuses all adapters.
    pub(in crate::model) fn refuse(&mut self, why: &'static str) {
        self.refused = Some(why);
    }

    /// Returns whether no layer takes an adapter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Returns the reason why the model takes no adapters, if there is one.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let has_none = self.is_empty().then_some("the layers of this model take no adapters");
        self.refused.or(has_none)
    }

    /// Sets the module that holds all but the head.
    pub(in crate::model) fn set_base(&mut self, base: &'static str) {
        self.base = base;
    }

    /// Sets the parts of names that differ between adapters and the checkpoint.
    pub(in crate::model) fn set_parts_of_names(
        &mut self,
        parts: &'static [(&'static str, &'static str)],
    ) {
        self.parts_of_names = parts;
    }

    /// Returns a module's name in the checkpoint, without the components that differ between
    /// classes and versions of transformers.
    pub(super) fn normalized<'n>(&self, module: &'n str) -> Cow<'n, str> {
        let mut rest = module;
        while let Some((first, inner)) = rest.split_once('.')
            && (OUTER.contains(&first) || first == self.base)
        {
            rest = inner;
        }
        let of_checkpoint = |name: Cow<'n, str>, (part, stored): &(&str, &str)| {
            if name.contains(part) { Cow::Owned(name.replace(part, stored)) } else { name }
        };
        self.parts_of_names.iter().fold(Cow::Borrowed(rest), of_checkpoint)
    }

    /// Returns whether a module with a linear layer takes no adapter.
    pub(in crate::model) fn is_closed(&self, module: &str) -> bool {
        let name = self.normalized(module);
        self.closed.iter().any(|closed| self.normalized(closed) == name)
    }

    /// Returns whether no result depends on a module.
    pub(super) fn is_unused(&self, module: &str) -> bool {
        let name = self.normalized(module);
        self.unused.iter().any(|unused| self.normalized(unused) == name)
    }

    /// Returns whether a module is beside the text model of a multimodal class.
    pub(super) fn is_in_other_part(&self, module: &str) -> bool {
        let name = self.normalized(module);
        self.other_parts.iter().any(|part| {
            let rest = name.strip_prefix(&*self.normalized(part));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// Registers the embedding `module`, `[vocab, width]`.
    pub(in crate::model) fn set_embedding(&mut self, module: &str, shape: [usize; 2]) {
        let module = self.known_module(module);
        self.embedding = Some(Replaceable { module, shape, has_bias: false });
    }

    /// Registers the output layer `module`, `[vocab, width]`.
    pub(in crate::model) fn set_lm_head(
        &mut self,
        module: &str,
        shape: [usize; 2],
        has_bias: bool,
    ) {
        self.lm_head = Some(Replaceable { module: self.known_module(module), shape, has_bias });
    }
}

impl Site {
    /// Returns the width of the output.
    pub(super) fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.outputs).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::model::{Dtype, LoadOptions, load_model};

    #[test]
    fn the_embedding_of_exaone_has_its_name_of_transformers_5_too() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models/exaone");
        let max_model_len = Some(64);
        let options = LoadOptions { dtype: Dtype::Float32, max_model_len, ..Default::default() };
        let model = load_model(&path, &options, &mut |_| {}).unwrap();
        let sites = &model.adapter_sites;
        let stored = sites.embedding.as_ref().unwrap().module.as_str();
        for name in ["model.embed_tokens", "transformer.wte"] {
            assert_eq!(sites.normalized(name), sites.normalized(stored), "{name}");
        }
    }

    /// llama.cpp's converter made the files, one of each architecture.
    #[test]
    fn modules_of_gguf_files_have_the_names_of_folders() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "gguf") {
                continue;
            }
            let max_model_len = Some(64);
            let options =
                LoadOptions { dtype: Dtype::Float32, max_model_len, ..Default::default() };
            let model = load_model(&path, &options, &mut |_| {}).unwrap();
            let sites = &model.adapter_sites;
            let modules = sites.sites.iter().flat_map(|site| &site.parts);
            let whole = [&sites.embedding, &sites.lm_head].into_iter().flatten();
            let names = modules.map(|part| &part.module).chain(&sites.closed);
            for name in names.chain(whole.map(|replaced| &replaced.module)) {
                let is_of_file = ["blk.", "token_embd"].iter().any(|n| name.starts_with(n));
                assert!(!is_of_file, "{}: {name}", path.display());
            }
            // llama.cpp's converter multiplies matrices by factors that the file does not have, or
            // gives the heads of a delta rule another order.
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let is_refused = name.starts_with("falcon_h1")
                || ["qwen3_5.gguf", "qwen3_5_moe.gguf"].contains(&&*name);
            assert_eq!(sites.refusal().is_some(), is_refused, "{}", path.display());
            count += 1;
        }
        assert!(count > 50, "{count} files");
    }
}
