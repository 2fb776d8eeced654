//! Adapters of experts that are one parameter in transformers 5: PEFT's `target_parameters`.
//!
//! Its matrices of all experts are one tensor each. Of `E` experts and rank `r`, A is
//! `[E · r, inputs]`, and expert `e` has the rows from `e · r` on. B is `[outputs, r · E]`, and
//! expert `e` has every `E`-th column from `e` on.

use super::load::{Loading, Matrices, Tensors};
use super::{AdapterError, AdapterSites, Site, SiteId};

/// The parameters of experts: the inner projections, and the one back.
const PARAMETERS: [&str; 2] = ["gate_up_proj", "down_proj"];
/// The end of the module around a parameter, where another parameter of the module has an adapter.
const INNER: &str = ".base_layer";

/// The experts of one layer.
#[derive(Debug, Clone)]
pub(super) struct ExpertSites {
    /// Their module, by the names that it has in the checkpoint and in transformers 5.
    modules: [String; 2],
    /// Two for each expert, in the order of [`PARAMETERS`].
    sites: Vec<[SiteId; 2]>,
}

impl AdapterSites {
    /// Registers the experts of a layer, whose module has these names in the checkpoint and in
    /// transformers 5.
    pub(in crate::model) fn add_experts(&mut self, modules: [String; 2], sites: &[[SiteId; 2]]) {
        self.experts.push(ExpertSites { modules, sites: sites.to_vec() });
    }

    /// Returns the experts of which a module of an adapter's file has matrices.
    pub(super) fn experts_of(&self, module: &str) -> Option<&ExpertSites> {
        let name = self.normalized(module);
        let name = name.strip_suffix(INNER).unwrap_or(name);
        let is_it = |experts: &&ExpertSites| {
            experts.modules.iter().any(|known| self.normalized(known) == name)
        };
        self.experts.iter().find(is_it)
    }
}

impl Loading<'_> {
    /// Returns the matrices of each expert in a module, by their sites.
    pub(super) fn of_experts(
        &self,
        module: &str,
        tensors: &Tensors,
        experts: &ExpertSites,
    ) -> Result<Vec<(SiteId, Matrices)>, AdapterError> {
        let (a, b) = self.names(module, tensors)?;
        let inputs = self.checkpoint.shape(a).and_then(|shape| shape.get(1)).copied();
        let outputs = self.checkpoint.shape(b).and_then(|shape| shape.first()).copied();
        let site = |parameter: usize| {
            experts.sites.first().map(|sites| &self.sites.sites[sites[parameter].0])
        };
        // The shapes of both parameters differ, because a gate makes the outputs of one two times
        // as long as the inputs of the other.
        let fits = |site: &Site| (Some(site.inputs), Some(site.outputs())) == (inputs, outputs);
        let Some(parameter) = (0..PARAMETERS.len()).find(|at| site(*at).is_some_and(fits)) else {
            let why = "its shape fits neither the gate_up_proj nor the down_proj of the experts";
            return Err(self.refused(a, why));
        };
        let Some(Site { inputs, .. }) = site(parameter) else { return Ok(Vec::new()) };
        let (inputs, outputs) = (*inputs, outputs.unwrap_or_default());
        let parent = module.strip_suffix(INNER).unwrap_or(module);
        let name = format!("{parent}.{}", PARAMETERS[parameter]);
        if !self.config.has_parameter(&name) {
            let why = format!("target_parameters of adapter_config.json does not name {name}");
            return Err(self.refused(a, &why));
        }
        let (rank, count) = (self.rank(&name)?, experts.sites.len());
        let a = self.values(a, &[count * rank, inputs])?;
        let b = self.values(b, &[outputs, rank * count])?;
        let scale = self.config.scale(&name);
        let of_expert = |(expert, sites): (usize, &[SiteId; 2])| {
            let a = a[expert * rank * inputs..][..rank * inputs].to_vec();
            let b = b.iter().skip(expert).step_by(count).copied().collect();
            (sites[parameter], Matrices { a, b, rank, scale })
        };
        Ok(experts.sites.iter().enumerate().map(of_expert).collect())
    }
}
