//! The layers of a model that adapters may change.

use burn::tensor::Device;
use playhouse_kernels::WeightDtype;

use super::classifier::ClassifierSite;
use super::experts::ExpertSites;
use crate::model::layers::Part;

/// Components that different versions of transformers put before the names of layers.
const OUTER: [&str; 3] = ["model", "language_model", "transformer"];

/// The index of a site in its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct SiteId(pub(super) usize);

/// A linear layer: the modules that are stacked in it, and the width of its input.
#[derive(Debug, Clone)]
pub(in crate::model) struct Site {
    pub(in crate::model) parts: Vec<Part>,
    pub(in crate::model) inputs: usize,
    /// Whether the layer multiplies with the transposed matrix of its only part.
    pub(super) turned: Option<Turned>,
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
    /// The module that holds all but the head: HF `base_model_prefix`. An adapter that was trained
    /// on it alone has names without it.
    pub(super) base: &'static str,
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
        self.push(Site { parts: parts.to_vec(), inputs, turned: None })
    }

    /// Registers a layer that multiplies with the transposed matrix of `part`, `[outputs, inputs]`.
    /// Its inputs and outputs have `further` elements behind those of the matrix.
    pub(in crate::model) fn add_turned(
        &mut self,
        part: Part,
        inputs: usize,
        further: usize,
    ) -> SiteId {
        self.push(Site { parts: vec![part], inputs, turned: Some(Turned { further }) })
    }

    fn push(&mut self, site: Site) -> SiteId {
        self.sites.push(site);
        SiteId(self.sites.len() - 1)
    }

    /// Registers modules that take no adapter.
    pub(in crate::model) fn close(&mut self, parts: &[Part]) {
        self.closed.extend(parts.iter().map(|part| part.module.clone()));
    }

    /// Registers a module that no result depends on. An adapter may change it.
    pub(in crate::model) fn add_unused(&mut self, module: String) {
        self.unused.push(module);
    }

    /// Sets the module that holds all but the head.
    pub(in crate::model) fn set_base(&mut self, base: &'static str) {
        self.base = base;
    }

    /// Returns a module's name without the components that differ between classes and versions of
    /// transformers.
    pub(super) fn normalized<'n>(&self, module: &'n str) -> &'n str {
        let mut rest = module;
        while let Some((first, inner)) = rest.split_once('.')
            && (OUTER.contains(&first) || first == self.base)
        {
            rest = inner;
        }
        rest
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

    /// Registers the embedding `module`, `[vocab, width]`.
    pub(in crate::model) fn set_embedding(&mut self, module: &str, shape: [usize; 2]) {
        let module = module.to_owned();
        self.embedding = Some(Replaceable { module, shape, has_bias: false });
    }

    /// Registers the output layer `module`, `[vocab, width]`.
    pub(in crate::model) fn set_lm_head(
        &mut self,
        module: &str,
        shape: [usize; 2],
        has_bias: bool,
    ) {
        self.lm_head = Some(Replaceable { module: module.to_owned(), shape, has_bias });
    }

    /// Returns whether no layer takes an adapter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }
}

impl Site {
    /// Returns the width of the output.
    pub(super) fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.outputs).sum()
    }
}
