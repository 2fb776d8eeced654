//! The layers of a model that adapters may change.

use burn::tensor::Device;
use playhouse_kernels::WeightDtype;

use crate::model::layers::Part;

/// The index of a site in its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct SiteId(pub(super) usize);

/// A linear layer: the modules that are stacked in it, and the width of its input.
#[derive(Debug, Clone)]
pub(in crate::model) struct Site {
    pub(in crate::model) parts: Vec<Part>,
    pub(in crate::model) inputs: usize,
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
    /// The modules with linear layers that take no adapter.
    pub(super) closed: Vec<String>,
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
        self.sites.push(Site { parts: parts.to_vec(), inputs });
        SiteId(self.sites.len() - 1)
    }

    /// Registers modules that take no adapter.
    pub(in crate::model) fn close(&mut self, parts: &[Part]) {
        self.closed.extend(parts.iter().map(|part| part.module.clone()));
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
