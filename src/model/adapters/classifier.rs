//! Adapters of a classifier: PEFT's task `SEQ_CLS` saves it as a whole, and its layers may have
//! matrices of low rank. It is computed on the processor, so an adapter has a classifier of its
//! own.

use std::collections::BTreeMap;

use super::load::{Loading, Tensors};
use super::{AdapterError, AdapterSites};
use crate::model::pooling::Classifier;

/// A classifier that an adapter may replace.
#[derive(Debug, Clone)]
pub(super) struct ClassifierSite {
    /// The module of each layer.
    modules: Vec<String>,
    classifier: Classifier,
}

/// The parts of a layer that an adapter saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saved {
    Weight,
    Bias,
}

impl AdapterSites {
    /// Registers the model's classifier, whose layers have these modules.
    pub(in crate::model) fn set_classifier(
        &mut self,
        modules: Vec<String>,
        classifier: &Classifier,
    ) {
        self.classifier = Some(ClassifierSite { modules, classifier: classifier.clone() });
    }

    /// Returns the layer of the classifier that a module is.
    pub(in crate::model) fn classifier_layer(&self, module: &str) -> Option<usize> {
        let name = self.normalized(module);
        let modules = &self.classifier.as_ref()?.modules;
        modules.iter().position(|known| self.normalized(known) == name)
    }
}

impl Loading<'_> {
    /// Returns the classifier of an adapter, if it changes the model's: `saved` are its tensors by
    /// layer. Takes the layers' matrices of low rank out of `modules`. Also returns the largest
    /// rank of these.
    pub(super) fn classifier(
        &self,
        saved: &[(usize, Saved, String)],
        modules: &mut BTreeMap<String, Tensors>,
    ) -> Result<(Option<Classifier>, usize), AdapterError> {
        let Some(site) = &self.sites.classifier else { return Ok((None, 0)) };
        let (mut classifier, mut max_rank) = (site.classifier.clone(), 0);
        for (layer, part, name) in saved {
            let layer = &mut classifier.layers[*layer];
            let outputs = layer.outputs();
            match part {
                Saved::Weight => layer.weight = self.values(name, &[outputs, layer.inputs])?,
                Saved::Bias if layer.bias.is_empty() => {
                    return Err(self.refused(name, "the layer of the base model has no bias"));
                }
                Saved::Bias => layer.bias = self.values(name, &[outputs])?,
            }
        }
        let mut is_changed = !saved.is_empty();
        let of_classifier =
            |module: &String, _: &mut Tensors| self.sites.classifier_layer(module).is_some();
        for (module, tensors) in modules.extract_if(.., of_classifier) {
            let Some(layer) = self.sites.classifier_layer(&module) else { continue };
            let layer = &mut classifier.layers[layer];
            let (outputs, inputs) = (layer.outputs(), layer.inputs);
            let matrices = self.matrices(&module, &tensors, [outputs, inputs])?;
            max_rank = max_rank.max(matrices.rank);
            let rows = layer.weight.chunks_exact_mut(inputs.max(1));
            for (row, b) in rows.zip(matrices.b.chunks_exact(matrices.rank)) {
                for (input, element) in row.iter_mut().enumerate() {
                    let a = matrices.a.iter().skip(input).step_by(inputs);
                    let sum: f64 =
                        b.iter().zip(a).map(|(b, a)| f64::from(*b) * f64::from(*a)).sum();
                    *element += (f64::from(matrices.scale) * sum) as f32;
                }
            }
            is_changed = true;
        }
        Ok((is_changed.then_some(classifier), max_rank))
    }
}
