//! Adapters of experts that are one parameter in transformers: PEFT's `target_parameters`.
//!
//! Its matrices of all experts are one tensor each. Of `E` experts and rank `r`, A is
//! `[E · r, inputs]`, and expert `e` has the rows from `e · r` on. B is `[outputs, r · E]`, and
//! expert `e` has every `E`-th column from `e` on. The inputs are those of the layer, or those of
//! the parameter as PEFT sees it (`ParamWrapper._get_in_out_features`): see [`Side`].

use super::load::{Loading, Matrices, Tensors};
use super::{AdapterError, AdapterSites, Site, SiteId};

/// The parameters of experts: the inner projections, and the one back.
const PARAMETERS: [&str; 2] = ["gate_up_proj", "down_proj"];
/// The end of the module around a parameter, where another parameter of the module has an adapter.
const INNER: &str = ".base_layer";

/// The meaning of a matrix's inputs and outputs. Versions of PEFT differ, and shapes tell. This one
/// counts where both fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Side {
    /// They are those of the layer.
    Layer,
    /// They are the other way round: A has the layer's outputs.
    Parameter,
}

/// The experts of one layer.
#[derive(Debug, Clone)]
pub(super) struct ExpertSites {
    /// Their module, by the names that it has in the checkpoint and in transformers 5.
    modules: [String; 2],
    side: Side,
    /// Two for each expert, in the order of [`PARAMETERS`].
    sites: Vec<[SiteId; 2]>,
}

impl AdapterSites {
    /// Registers the experts of a layer, whose module has these names in the checkpoint and in
    /// transformers 5.
    pub(in crate::model) fn add_experts(
        &mut self,
        modules: [String; 2],
        side: Side,
        sites: &[[SiteId; 2]],
    ) {
        self.experts.push(ExpertSites { modules, side, sites: sites.to_vec() });
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
        let Some((parameter, side)) = self.parameter(experts, [inputs, outputs]) else {
            let why = "its shape fits neither the gate_up_proj nor the down_proj of the experts";
            return Err(self.refused(a, why));
        };
        let (inputs, outputs) = (inputs.unwrap_or_default(), outputs.unwrap_or_default());
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
            let b: Vec<f32> = b.iter().skip(expert).step_by(count).copied().collect();
            let [a, b] = match side {
                Side::Layer => [a, b],
                // The matrix is B · A, and the layer multiplies with its transpose.
                Side::Parameter => [transposed(&b, rank), transposed(&a, inputs)],
            };
            (sites[parameter], Matrices { a, b, rank, scale })
        };
        Ok(experts.sites.iter().enumerate().map(of_expert).collect())
    }

    /// Returns the parameter whose matrices have so many inputs and outputs, and their side.
    fn parameter(
        &self,
        experts: &ExpertSites,
        [inputs, outputs]: [Option<usize>; 2],
    ) -> Option<(usize, Side)> {
        let sites = experts.sites.first()?.map(|SiteId(site)| &self.sites.sites[site]);
        // A gate makes the outputs of one parameter twice as many as the inputs of the other, so
        // the shapes of both differ. Without a gate, each is the other one's transpose.
        let [inner, outer] = sites;
        let is_gated = inner.outputs() != outer.inputs;
        let order = match experts.side {
            Side::Layer => [Side::Layer, Side::Parameter],
            Side::Parameter => [Side::Parameter, Side::Layer],
        };
        let fits = |site: &Site, side: Side| {
            let shape = (Some(site.inputs), Some(site.outputs()));
            match side {
                Side::Layer => shape == (inputs, outputs),
                Side::Parameter => is_gated && shape == (outputs, inputs),
            }
        };
        order.into_iter().find_map(|side| {
            let parameter = sites.iter().position(|site| fits(site, side))?;
            Some((parameter, side))
        })
    }
}

/// Returns the transpose of a matrix whose rows have `width` elements.
fn transposed(matrix: &[f32], width: usize) -> Vec<f32> {
    let column = |at: usize| matrix.iter().skip(at).step_by(width).copied();
    (0..width).flat_map(column).collect()
}
