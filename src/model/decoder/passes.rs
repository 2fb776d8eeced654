//! The inputs of layers that depend on more than the layer before: the passes of a model, and
//! connections that skip layers.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use playhouse_kernels::{add, recycle, scale};

use super::Decoder;
use crate::model::Step;
use crate::model::config::{Section, SkipConnection};

impl Decoder {
    /// Begins a pass if `index` is the first layer of one, counted from the first pass on. Returns
    /// the input of that layer.
    pub(super) fn entered(
        &self,
        index: usize,
        hidden: Tensor<2>,
        residual: Option<Tensor<2>>,
        step: &mut Step<'_>,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        if index == 0 || !index.is_multiple_of(self.layers.len()) {
            return (hidden, residual);
        }
        step.begin_pass(index / self.layers.len() * self.kv_layers_of_pass);
        match self.norm.as_ref().filter(|_| self.passes.has_norms) {
            None => (hidden, residual),
            Some(norm) => {
                let (hidden, sum) = norm.add_forward(hidden, residual);
                recycle(sum);
                (hidden, None)
            }
        }
    }

    /// Returns the input of the layer with the number `index` in the order of all passes. They go
    /// through `section` alone. `first_input` becomes the norm of the first pass' input.
    pub(super) fn entered_section(
        &self,
        section: Section,
        index: usize,
        (hidden, residual): (Tensor<2>, Option<Tensor<2>>),
        first_input: &mut Option<Tensor<2>>,
        step: &mut Step<'_>,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        let Some(behind) = index.checked_sub(section.start) else { return (hidden, residual) };
        let pass = behind / section.len();
        if pass >= self.passes.count {
            step.begin_pass(0);
            return (hidden, residual);
        }
        let Some(norm) = self.norm.as_ref().filter(|_| behind.is_multiple_of(section.len())) else {
            return (hidden, residual);
        };
        // The KV cache has the layers of further passes behind those of all layers.
        let [before, of_section] = self.kv_layers_of_section;
        step.begin_pass(match pass {
            0 => 0,
            pass => self.kv_layers_of_pass + (pass - 1) * of_section - before,
        });
        let (normed, sum) = norm.add_forward(hidden, residual);
        recycle(sum);
        let first = first_input.get_or_insert_with(|| normed.clone());
        (add(normed, first.clone()), None)
    }

    /// Returns the input of layer `index` with the parts of earlier ones. `kept` has the streams
    /// before the layers that later ones take parts of.
    pub(super) fn mixed(
        &self,
        index: usize,
        hidden: Tensor<2>,
        residual: Option<Tensor<2>>,
        kept: &mut BTreeMap<usize, Tensor<2>>,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        if !self.skips.iter().any(|skip| skip.from == index || skip.layer == index) {
            return (hidden, residual);
        }
        let mut stream = sum_of(&hidden, residual.as_ref());
        if self.skips.iter().any(|skip| skip.from == index) {
            kept.insert(index, stream.clone());
        }
        for SkipConnection { from, weight, .. } in
            self.skips.iter().filter(|skip| skip.layer == index)
        {
            if let Some(earlier) = kept.get(from) {
                stream = add(scale(earlier.clone(), *weight), scale(stream, 1.0 - weight));
            }
        }
        (stream, None)
    }
}

/// Returns the residual stream before a layer.
pub(super) fn sum_of(hidden: &Tensor<2>, residual: Option<&Tensor<2>>) -> Tensor<2> {
    match residual {
        Some(residual) => add(hidden.clone(), residual.clone()),
        None => hidden.clone(),
    }
}
