//! Adapters of experts that are one parameter in transformers: PEFT's `target_parameters`.
//!
//! Its matrices of all experts are one tensor each. Of `E` experts and rank `r`, A is
//! `[E · r, inputs]`, and expert `e` has the rows from `e · r` on. B is `[outputs, r · E]`, and
//! expert `e` has every `E`-th column from `e` on. The inputs are those of the layer, or those of
//! the parameter as PEFT sees it (`ParamWrapper._get_in_out_features`): see [`Side`].
//!
//! A parameter of two axes is one matrix for PEFT, with the experts below one another. A is
//! `[r, hidden]`, the same for all experts. B is `[E · intermediate, r]`. DBRX and Nomic's encoders
//! have these.

use std::collections::BTreeMap;

use playhouse_kernels::ExpertLora;

use super::load::{Loading, Matrices, Own, Tensors};
use super::{AdapterError, AdapterSites, ExpertsId, SiteId};

/// The parameters of experts: the inner projections, and the one back.
const PARAMETERS: [&str; 2] = ["gate_up_proj", "down_proj"];
/// The inner projection of experts without gates.
const UNGATED: &str = "up_proj";
/// Both products of an expert.
const BOTH: &[usize] = &[0, 1];
/// The end of the module around a parameter, where another parameter of the module has an adapter.
const INNER: &str = ".base_layer";

/// The axes of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Axes {
    /// `[experts, outputs, inputs]`.
    ByOutput,
    /// `[experts, inputs, outputs]`.
    ByInput,
    /// `[experts, inputs, outputs]`, and the class says so (`is_transposed`, gpt-oss).
    MarkedByInput,
}

impl Axes {
    /// Returns the side of matrices that a version of PEFT wrote (`ParamWrapper`). PEFT took the
    /// second axis as the inputs until 0.19.0, and takes the last one since 0.19.1. The mark turns
    /// this around. Version 0.19.0 misread the mark. `None` if the version does not tell.
    fn side(self, version: &str) -> Option<Side> {
        let (release, is_development) = match version.split_once(".dev") {
            Some((release, _)) => (release, true),
            None => (version, false),
        };
        let mut numbers = [0_u32; 3];
        for (number, digits) in numbers.iter_mut().zip(release.split('.')) {
            *number = digits.parse().ok()?;
        }
        // A development version is any state between two releases.
        if is_development && numbers[..2] == [0, 19] {
            return None;
        }
        let is_unclear = numbers == [0, 19, 0] || (is_development && numbers[..2] == [0, 18]);
        match (self, numbers >= [0, 19, 1]) {
            (Self::MarkedByInput, _) if is_unclear => None,
            (Self::MarkedByInput, _) | (Self::ByOutput, true) | (Self::ByInput, false) => {
                Some(Side::Layer)
            }
            (Self::ByOutput, false) | (Self::ByInput, true) => Some(Side::Parameter),
        }
    }
}

/// The meaning of a matrix's inputs and outputs. Versions of PEFT differ, and shapes tell. Where
/// both sides fit, the file's other matrices count, and else the version: see [`Axes::side`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// They are those of the layer.
    Layer,
    /// They are the other way round: A has the layer's outputs.
    Parameter,
}

/// Parameters in which transformers has the experts of a layer. Classes and versions differ.
#[derive(Debug, Clone)]
pub(in crate::model) enum ExpertParameters {
    /// `gate_up_proj` and `down_proj` of one module.
    Together { module: String, axes: Axes },
    /// `weight` of a module for each product, `[experts, outputs, inputs]`.
    Apart([String; 2]),
    /// Parameters of one module, in the order of its class: `[experts · intermediate, hidden]`
    /// each. The layer multiplies with the transpose of the last one. The others are side by side
    /// in the inner product.
    Rows { module: String, names: Vec<&'static str> },
}

/// The experts of one layer.
#[derive(Debug, Clone)]
pub(super) struct ExpertSites {
    parameters: Vec<ExpertParameters>,
    /// Two for each expert: the inner projections, and the one back.
    sites: Vec<[SiteId; 2]>,
    /// Number of experts behind these that return their input. The parameter of the inner
    /// projections has them, too, without effect.
    num_identities: usize,
}

impl ExpertParameters {
    /// Returns whether the checkpoint has the experts in the form of Granite or of Nomic.
    pub(in crate::model) fn are_stacked(&self) -> bool {
        matches!(self, Self::Apart(_) | Self::Rows { .. })
    }

    fn modules(&self) -> &[String] {
        match self {
            Self::Together { module, .. } | Self::Rows { module, .. } => {
                std::slice::from_ref(module)
            }
            Self::Apart(modules) => modules,
        }
    }
}

impl AdapterSites {
    /// Registers the experts of a layer, in each form that adapters know. `sites` has the products
    /// of each expert. `num_identities` further experts return their input.
    pub(in crate::model) fn add_experts(
        &mut self,
        parameters: Vec<ExpertParameters>,
        sites: Vec<[SiteId; 2]>,
        num_identities: usize,
    ) -> ExpertsId {
        self.experts.push(ExpertSites { parameters, sites, num_identities });
        ExpertsId(self.experts.len() - 1)
    }

    /// Registers experts that take no adapter.
    pub(in crate::model) fn close_experts(&mut self, parameters: &[ExpertParameters]) {
        let modules = parameters.iter().flat_map(ExpertParameters::modules);
        self.closed.extend(modules.flat_map(|name| [name.clone(), format!("{name}{INNER}")]));
    }

    /// Returns the experts of which a module of an adapter's file has matrices.
    pub(super) fn experts_of(&self, module: &str) -> Option<(&ExpertSites, &ExpertParameters)> {
        let name = self.normalized(module);
        let name = without_inner(&name);
        let is_it = |known: &&ExpertParameters| {
            known.modules().iter().any(|known| self.normalized(known) == name)
        };
        self.experts
            .iter()
            .find_map(|experts| Some((experts, experts.parameters.iter().find(is_it)?)))
    }
}

impl Loading<'_> {
    /// Returns the sides that the shapes of matrices tell by themselves, by the axes of parameters.
    /// One version of PEFT wrote all matrices of a file over one class, so they have one side.
    ///
    /// PEFT 0.19.1 and later exchange the matrices of gpt-oss under transformers 4, because its
    /// class there does not say that it is transposed. Only shapes tell this.
    pub(super) fn told_sides(&self, modules: &BTreeMap<String, Tensors>) -> Vec<(Axes, Side)> {
        let mut told = Vec::new();
        for (module, tensors) in modules {
            let Some((experts, parameters)) = self.sites.experts_of(module) else { continue };
            let (axes, products) = match parameters {
                ExpertParameters::Together { axes, .. } => (*axes, BOTH),
                ExpertParameters::Apart([inner, _]) => {
                    (Axes::ByOutput, self.product_apart(module, inner))
                }
                ExpertParameters::Rows { .. } => continue,
            };
            let Ok((a, b)) = self.names(module, tensors) else { continue };
            let shape = self.inputs_and_outputs(a, b);
            if let [(_, side)] = self.fits(experts, products, shape)[..]
                && !told.contains(&(axes, side))
            {
                told.push((axes, side));
            }
        }
        told
    }

    /// Returns the product of the module that is `inner`, or of the other one of two.
    fn product_apart(&self, module: &str, inner: &str) -> &'static [usize] {
        let parent = without_inner(module);
        match self.sites.normalized(inner) == self.sites.normalized(parent) {
            true => &[0],
            false => &[1],
        }
    }

    /// Returns the inputs of A and the outputs of B.
    fn inputs_and_outputs(&self, a: &str, b: &str) -> [Option<usize>; 2] {
        let inputs = self.checkpoint.shape(a).and_then(|shape| shape.get(1)).copied();
        let outputs = self.checkpoint.shape(b).and_then(|shape| shape.first()).copied();
        [inputs, outputs]
    }

    /// Returns the matrices of each expert in a module, by their sites. `told` has the sides that
    /// are known from other modules.
    pub(super) fn of_experts(
        &self,
        module: &str,
        tensors: &Tensors,
        (experts, parameters): (&ExpertSites, &ExpertParameters),
        told: &[(Axes, Side)],
    ) -> Result<Vec<(SiteId, Matrices)>, AdapterError> {
        let (a, b) = self.names(module, tensors)?;
        let shape = self.inputs_and_outputs(a, b);
        let [inputs, outputs] = shape;
        let parent = without_inner(module);
        let (product, side, name) = match parameters {
            ExpertParameters::Together { axes, .. } => {
                let fitting = self.fits(experts, BOTH, shape);
                let (product, side) = self.only(a, fitting, 2, *axes, told)?;
                (product, side, self.parameter_of(parent, product))
            }
            ExpertParameters::Apart([inner, _]) => {
                let fitting = self.fits(experts, self.product_apart(module, inner), shape);
                let (product, side) = self.only(a, fitting, 1, Axes::ByOutput, told)?;
                (product, side, format!("{parent}.weight"))
            }
            ExpertParameters::Rows { names, .. } => {
                return self.of_rows(module, [a, b], experts, names);
            }
        };
        self.require_parameter(a, &name)?;
        let (inputs, outputs) = (inputs.unwrap_or_default(), outputs.unwrap_or_default());
        let num_identities = if product == 0 { experts.num_identities } else { 0 };
        let (rank, count) = (self.rank(&name)?, experts.sites.len() + num_identities);
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
            (sites[product], Matrices { a, b, rank, scale, first_output: 0 })
        };
        Ok(experts.sites.iter().enumerate().map(of_expert).collect())
    }

    /// Returns the matrices of each expert in one of the parameters `names` of a module, each of
    /// two axes. PEFT wraps the module once for each parameter that it changes, and the last one is
    /// outermost.
    fn of_rows(
        &self,
        module: &str,
        [a, b]: [&str; 2],
        experts: &ExpertSites,
        names: &[&'static str],
    ) -> Result<Vec<(SiteId, Matrices)>, AdapterError> {
        let parent = without_inner(module);
        let depth = (module.len() - parent.len()) / INNER.len();
        let names: Vec<String> = names.iter().map(|name| format!("{parent}.{name}")).collect();
        let changed = names.iter().enumerate().filter(|(_, name)| self.config.has_parameter(name));
        let Some((index, name)) = changed.rev().nth(depth) else {
            let parameters = names.join(" or ");
            let why =
                format!("target_parameters of adapter_config.json does not name {parameters}");
            return Err(self.refused(a, &why));
        };
        let Some(sites) = experts.sites.first() else { return Ok(Vec::new()) };
        let [hidden, intermediate] = sites.map(|SiteId(site)| self.sites.sites[site].inputs);
        let (product, first_output) = match index + 1 == names.len() {
            true => (1, 0),
            false => (0, index * intermediate),
        };
        let (rank, scale) = (self.rank(name)?, self.config.scale(name));
        let a = self.values(a, &[rank, hidden])?;
        let b = self.values(b, &[experts.sites.len() * intermediate, rank])?;
        let of_expert = |(sites, b): (&[SiteId; 2], &[f32])| {
            let [a, b] = match product {
                0 => [a.clone(), b.to_vec()],
                _ => [transposed(b, rank), transposed(&a, hidden)],
            };
            (sites[product], Matrices { a, b, rank, scale, first_output })
        };
        Ok(experts.sites.iter().zip(b.chunks_exact(intermediate * rank)).map(of_expert).collect())
    }

    /// Returns the name of the parameter of a product of the experts in `parent`.
    fn parameter_of(&self, parent: &str, product: usize) -> String {
        let ungated = format!("{parent}.{UNGATED}");
        match product == 0 && self.config.has_parameter(&ungated) {
            true => ungated,
            false => format!("{parent}.{}", PARAMETERS[product]),
        }
    }

    /// Fails unless the config names a parameter. `tensor` has its matrix.
    fn require_parameter(&self, tensor: &str, name: &str) -> Result<(), AdapterError> {
        if self.config.has_parameter(name) {
            return Ok(());
        }
        let why = format!("target_parameters of adapter_config.json does not name {name}");
        Err(self.refused(tensor, &why))
    }

    /// Packs the matrices of all experts of a layer for each of their two products. `of_sites` has
    /// those of parameters by their sites, and `of_modules` those of modules.
    pub(super) fn packed_experts(
        &self,
        experts: &ExpertSites,
        of_sites: &BTreeMap<usize, Vec<Matrices>>,
        of_modules: &BTreeMap<String, Matrices>,
    ) -> Result<[Option<ExpertLora>; 2], AdapterError> {
        let mut packed = [None, None];
        for (product, packed) in packed.iter_mut().enumerate() {
            let sites = experts.sites.iter().map(|sites| sites[product].0);
            let own: Vec<Vec<Own<'_>>> = sites
                .clone()
                .map(|site| {
                    let of_site = of_sites.get(&site).map(Vec::as_slice).unwrap_or_default();
                    self.own(&self.sites.sites[site], of_site, of_modules)
                })
                .collect();
            let Some(site) = sites.map(|site| &self.sites.sites[site]).next() else { continue };
            if own.iter().all(Vec::is_empty) {
                continue;
            }
            let pairs: Vec<Vec<_>> =
                own.iter().map(|own| own.iter().map(Own::pair).collect()).collect();
            let shape = [site.outputs(), site.inputs];
            let lora = ExpertLora::pack(&pairs, shape, self.dtype, self.device);
            *packed = Some(lora.map_err(|source| self.on_device(site, source))?);
        }
        Ok(packed)
    }

    /// Returns which of `products` may have matrices with so many inputs and outputs, and their
    /// side.
    fn fits(
        &self,
        experts: &ExpertSites,
        products: &[usize],
        [inputs, outputs]: [Option<usize>; 2],
    ) -> Vec<(usize, Side)> {
        let sites = experts.sites.first();
        let sites = sites.map(|sites| sites.map(|SiteId(site)| &self.sites.sites[site]));
        let mut fitting = Vec::new();
        for (product, site) in sites.iter().flatten().enumerate() {
            let (layer, given) = ((Some(site.inputs), Some(site.outputs())), (inputs, outputs));
            if products.contains(&product) && layer == given {
                fitting.push((product, Side::Layer));
            }
            if products.contains(&product) && layer == (outputs, inputs) {
                fitting.push((product, Side::Parameter));
            }
        }
        fitting
    }

    /// Returns the only one of the products and sides that fit, of `num_products`. `tensor` has one
    /// of the matrices. Where shapes do not tell the side, other matrices do, or the version of
    /// PEFT.
    fn only(
        &self,
        tensor: &str,
        mut fitting: Vec<(usize, Side)>,
        num_products: usize,
        axes: Axes,
        told: &[(Axes, Side)],
    ) -> Result<(usize, Side), AdapterError> {
        if fitting.len() > 1 {
            let mut of_others = told.iter().filter(|(of, _)| *of == axes).map(|(_, side)| *side);
            let of_others = match (of_others.next(), of_others.next()) {
                (side, None) => side,
                // The shapes disagree.
                _ => None,
            };
            let version = self.config.peft_version();
            let side = of_others.or_else(|| version.and_then(|version| axes.side(version)));
            let side = side.ok_or_else(|| AdapterError::Config {
                path: self.files.config_path.clone(),
                field: "peft_version",
                value: version.unwrap_or("null").to_owned(),
                accepted: "the release of PEFT that wrote the adapter, because the shapes of its \
                           experts' matrices do not tell which axis has their inputs",
            })?;
            let of_unmarked = version.and_then(|version| Axes::ByInput.side(version));
            if of_others.is_none() && axes == Axes::MarkedByInput && of_unmarked != Some(side) {
                let what = "square matrices of experts are read as those of transformers 5; the \
                            file does not tell them from those of transformers 4";
                tracing::warn!(tensor, "{what}");
            }
            fitting.retain(|(_, of)| *of == side);
        }
        match (&fitting[..], num_products) {
            ([one], _) => Ok(*one),
            ([], 1) => Err(self.refused(tensor, "its shape does not fit the experts")),
            ([], _) => {
                let why =
                    "its shape fits neither the gate_up_proj nor the down_proj of the experts";
                Err(self.refused(tensor, why))
            }
            _ => {
                let why = "its shape fits both the gate_up_proj and the down_proj of the experts";
                Err(self.refused(tensor, why))
            }
        }
    }
}

/// Returns the module around whose parameters PEFT has put others.
fn without_inner(mut module: &str) -> &str {
    while let Some(outer) = module.strip_suffix(INNER) {
        module = outer;
    }
    module
}

/// Returns the transpose of a matrix whose rows have `width` elements.
fn transposed(matrix: &[f32], width: usize) -> Vec<f32> {
    let column = |at: usize| matrix.iter().skip(at).step_by(width).copied();
    (0..width).flat_map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_peft_tells_the_side_of_square_matrices() {
        let sides = |version: &str| {
            [Axes::ByOutput, Axes::ByInput, Axes::MarkedByInput].map(|axes| axes.side(version))
        };
        let (layer, parameter) = (Some(Side::Layer), Some(Side::Parameter));
        for version in ["0.17.1", "0.18.0", "0.18.1"] {
            assert_eq!(sides(version), [parameter, layer, layer], "{version}");
        }
        assert_eq!(sides("0.18.1.dev0@0123abc"), [parameter, layer, None]);
        assert_eq!(sides("0.19.0"), [parameter, layer, None]);
        assert_eq!(sides("0.19.1.dev0@UNKNOWN"), [None; 3]);
        for version in ["0.19.1", "0.20.0", "0.20.1.dev0@0123abc", "0.21.2", "1.0"] {
            assert_eq!(sides(version), [layer, parameter, layer], "{version}");
        }
        for version in ["", "new", "0.19.0rc1"] {
            assert_eq!(sides(version), [None; 3], "{version}");
        }
    }
}
