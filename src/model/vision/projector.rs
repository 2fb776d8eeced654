//! Projectors: from the features of a tower to the text model's width (HF
//! `LlavaMultiModalProjector`, `Mistral3MultiModalProjector`, `Idefics3Connector`,
//! `UltraVBertConnector`, `InternVLMultiModalProjector`, `Gemma3MultiModalProjector`,
//! `Cohere2VisionMultiModalProjector`, `PaddleOCRProjector`).

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, LinearWeight, WeightView, activate, profile::timed};

use crate::model::config::NormConfig;
use crate::model::layers::{Linear, Norm, Part, by_patches};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// The shape of a projector.
#[derive(Debug, Clone)]
pub(super) struct ProjectorConfig {
    /// The modules of one layer, or of two with an activation between them. Without any, the
    /// result is that of `merging`.
    pub(super) layers: &'static [&'static str],
    /// The outputs of the first of two layers, if they are not as many as those of the second.
    pub(super) inner: Option<usize>,
    /// Whether the second half of these outputs gates the first half.
    pub(super) is_gated: bool,
    pub(super) activation: Activation,
    pub(super) has_bias: bool,
    /// Patches on a side of a square that becomes one embedding.
    pub(super) merge: usize,
    /// Whether a square becomes the mean of its patches, and not all of them side by side.
    pub(super) averages: bool,
    pub(super) norm: ProjectorNorm,
    pub(super) merging: Option<Merging>,
    /// A norm of each embedding, behind the layers.
    pub(super) last_norm: Option<(&'static str, NormConfig)>,
    /// The width of the text model.
    pub(super) outputs: usize,
}

impl ProjectorConfig {
    /// Returns a module that every checkpoint of the projector has.
    pub(super) fn first_module(&self) -> &'static str {
        match (self.layers, self.norm) {
            ([first, ..], _) => first,
            ([], ProjectorNorm::OfPatch(name, _) | ProjectorNorm::OfSquare(name, _)) => name,
            ([], ProjectorNorm::None) => "",
        }
    }
}

/// The product before the layers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Merging {
    /// A module that maps the patches of a square, side by side, to the width of one.
    Unfolded(&'static str),
    /// A tensor, `[features, outputs]`.
    ByInput(&'static str),
}

/// The norm before the layers.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProjectorNorm {
    None,
    /// A norm of each patch.
    OfPatch(&'static str, NormConfig),
    /// A norm of each square.
    OfSquare(&'static str, NormConfig),
}

/// A projector.
#[derive(Debug)]
pub(super) struct Projector {
    norm: Option<Norm>,
    is_norm_of_square: bool,
    averages: bool,
    merging: Option<LinearWeight>,
    layers: Vec<Linear>,
    is_gated: bool,
    activation: Activation,
    last_norm: Option<Norm>,
    /// Patches of a square.
    unit: usize,
}

impl Projector {
    /// Maps the features of patches, `[rows, features]`, to `[rows / unit, outputs]`. The patches
    /// of a square follow each other.
    pub(super) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        timed("projector", || {
            let [count, width] = x.dims();
            let merged = |x: Tensor<2>| match self.unit {
                1 => x,
                unit if self.averages => x
                    .reshape([count / unit, unit, width])
                    .mean_dim(1)
                    .reshape([count / unit, width]),
                unit => x.reshape([count / unit, width * unit]),
            };
            let x = match &self.norm {
                None => merged(x),
                Some(norm) if self.is_norm_of_square => norm.forward(merged(x)),
                Some(norm) => merged(norm.forward(x)),
            };
            let x = match &self.merging {
                None => x,
                Some(weight) => playhouse_kernels::linear(x, weight, None),
            };
            let none = Adapters::none();
            if let ([inner, outer], true) = (&*self.layers, self.is_gated) {
                return outer.forward(inner.forward_gated(x, self.activation, none), none);
            }
            let mut layers = self.layers.iter();
            let first = layers.next().map(|layer| layer.forward(x.clone(), none));
            let x = layers.fold(first.unwrap_or(x), |x, layer| {
                layer.forward(activate(x, self.activation), none)
            });
            match &self.last_norm {
                None => x,
                Some(norm) => norm.forward(x),
            }
        })
    }

    /// Loads the projector `module` of patches with `inputs` features.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        inputs: usize,
        config: &ProjectorConfig,
    ) -> Result<Self, ModelError> {
        let unit = config.merge * config.merge;
        let of_square = if config.averages { inputs } else { inputs * unit };
        let full = |name: &str| format!("{module}.{name}");
        let (norm, is_norm_of_square) = match config.norm {
            ProjectorNorm::None => (None, false),
            ProjectorNorm::OfPatch(name, norm) => {
                (Some(Norm::load(loader, &full(name), inputs, norm)?), false)
            }
            ProjectorNorm::OfSquare(name, norm) => {
                (Some(Norm::load(loader, &full(name), of_square, norm)?), true)
            }
        };
        let merging = config.merging.map(|merging| match merging {
            Merging::Unfolded(name) => unfolded(loader, &full(name), [inputs, unit]),
            Merging::ByInput(name) => by_input(loader, &full(name), [of_square, config.outputs]),
        });
        let mut width = if merging.is_some() { inputs } else { of_square };
        let mut layers = Vec::new();
        for (index, name) in config.layers.iter().enumerate() {
            let inner = config.inner.filter(|_| index + 1 < config.layers.len());
            let outputs = inner.unwrap_or(config.outputs);
            let is_gated = inner.is_some() && config.is_gated;
            let part = Part::new(full(name), outputs);
            // The gate comes first in a layer.
            let part = if is_gated { part.halves_swapped() } else { part };
            layers.push(Linear::of_media(loader, &[part], width, config.has_bias)?);
            width = if is_gated { outputs / 2 } else { outputs };
        }
        let activation = config.activation;
        let last_norm = config
            .last_norm
            .map(|(name, norm)| Norm::load(loader, &full(name), config.outputs, norm));
        Ok(Self {
            norm,
            is_norm_of_square,
            averages: config.averages,
            merging: merging.transpose()?,
            layers,
            is_gated: config.is_gated,
            activation,
            last_norm: last_norm.transpose()?,
            unit,
        })
    }
}

/// Loads the layer `module` from a square to the width of one patch.
fn unfolded(
    loader: &mut WeightLoader<'_>,
    module: &str,
    [width, unit]: [usize; 2],
) -> Result<LinearWeight, ModelError> {
    loader.packed(module, [width, width * unit], |loader| {
        let stored = loader.values(&format!("{module}.weight"), &[width, width * unit])?;
        let values = by_patches(&stored, [width, unit]);
        let view = [WeightView::F32(&values)];
        let packed = LinearWeight::pack(&view, width * unit, loader.dtype(), loader.device());
        Ok(packed.map_err(refused(module))?.with_tensor_cores(loader.tensor_cores()))
    })
}

/// Loads the tensor `name`, `[features, outputs]`.
fn by_input(
    loader: &mut WeightLoader<'_>,
    name: &str,
    [features, outputs]: [usize; 2],
) -> Result<LinearWeight, ModelError> {
    loader.packed(name, [outputs, features], |loader| {
        let stored = loader.values(name, &[features, outputs])?;
        let row = |output: usize| stored.iter().skip(output).step_by(outputs).copied();
        let values: Vec<f32> = (0..outputs).flat_map(row).collect();
        let view = [WeightView::F32(&values)];
        let packed = LinearWeight::pack(&view, features, loader.dtype(), loader.device());
        Ok(packed.map_err(refused(name))?.with_tensor_cores(loader.tensor_cores()))
    })
}
