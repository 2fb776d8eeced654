//! Linear layers (HF `nn.Linear`). Several of them may be stacked into one product.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, LinearWeight, QuantizationScheme, WeightVector, WeightView, activate, gated,
    linear, linear_activated, linear_swiglu, tied_embedding,
};

use super::Part;
use crate::model::adapters::SiteId;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};
use crate::weights::{MatrixElements, Stack, StoredMatrix, TensorValues};

/// `x · Wᵀ + b`.
#[derive(Debug)]
pub(in crate::model) struct Linear {
    weight: LinearWeight,
    bias: Option<WeightVector>,
    /// Where adapters change it.
    site: Option<SiteId>,
}

impl Linear {
    /// Loads the modules `parts` as one layer. Its outputs are theirs side by side.
    /// `{module}.weight` is `[outputs, inputs]`, in any format of the checkpoint. `{module}.bias`,
    /// if `has_bias`, is `[outputs]`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        parts: &[Part],
        inputs: usize,
        has_bias: bool,
    ) -> Result<Self, ModelError> {
        let weight = weight(loader, parts, inputs, loader.quantization())?;
        let bias = has_bias.then(|| loader.bias(parts));
        let site = Some(loader.adapter_sites().add(parts, inputs));
        Ok(Self { weight, bias: bias.transpose()?, site })
    }

    /// Loads the weight of `parts` alone, for an operation that takes no adapters.
    pub(in crate::model) fn weight(
        loader: &mut WeightLoader<'_>,
        parts: &[Part],
        inputs: usize,
    ) -> Result<LinearWeight, ModelError> {
        loader.adapter_sites().close(parts);
        weight(loader, parts, inputs, loader.quantization())
    }

    /// Loads the weight of `parts` of one expert with its site, for an operation that takes
    /// adapters.
    pub(in crate::model) fn of_expert(
        loader: &mut WeightLoader<'_>,
        parts: &[Part],
        inputs: usize,
    ) -> Result<(LinearWeight, SiteId), ModelError> {
        let weight = weight(loader, parts, inputs, loader.quantization())?;
        Ok((weight, loader.adapter_sites().add_expert(parts, inputs)))
    }

    /// Loads `parts` without biases, and keeps them as floats.
    pub(in crate::model) fn unquantized(
        loader: &mut WeightLoader<'_>,
        parts: &[Part],
        inputs: usize,
    ) -> Result<Self, ModelError> {
        let weight = weight(loader, parts, inputs, None)?;
        Ok(Self { weight, bias: None, site: Some(loader.adapter_sites().add(parts, inputs)) })
    }

    /// Loads `parts` as one layer of a part for media: it keeps floats, and takes no adapters.
    pub(in crate::model) fn of_media(
        loader: &mut WeightLoader<'_>,
        parts: &[Part],
        inputs: usize,
        has_bias: bool,
    ) -> Result<Self, ModelError> {
        loader.adapter_sites().close(parts);
        let weight = weight(loader, parts, inputs, None)?;
        let bias = has_bias.then(|| loader.bias(parts));
        Ok(Self { weight, bias: bias.transpose()?, site: None })
    }

    /// Loads the convolution `module` of a part for media, whose steps are as wide as its kernel. A
    /// row is then one patch, in the order of the kernel's axes. `{module}.weight` has `shape`, the
    /// outputs first.
    pub(in crate::model) fn of_patches(
        loader: &mut WeightLoader<'_>,
        module: &str,
        shape: &[usize],
        has_bias: bool,
    ) -> Result<Self, ModelError> {
        let (outputs, inputs) = (shape[0], shape[1..].iter().product());
        let part = [Part::new(module.to_owned(), outputs)];
        let weight = loader.packed(module, [outputs, inputs], |loader| {
            let values = loader.values(&format!("{module}.weight"), shape)?;
            let view = [WeightView::F32(&values)];
            let packed = LinearWeight::pack(&view, inputs, loader.dtype(), loader.device());
            Ok(packed.map_err(refused(module))?.with_tensor_cores(loader.tensor_cores()))
        })?;
        let bias = has_bias.then(|| loader.bias(&part));
        Ok(Self { weight, bias: bias.transpose()?, site: None })
    }

    /// Loads the layer `module` over patches of `side²` pixels. A row of this layer has a patch
    /// channel by channel. `{module}.weight` is `[outputs, side · side · 3]`, pixel by pixel.
    pub(in crate::model) fn of_pixels(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [outputs, side]: [usize; 2],
        has_bias: bool,
    ) -> Result<Self, ModelError> {
        let (area, part) = (side * side, [Part::new(module.to_owned(), outputs)]);
        let weight = loader.packed(module, [outputs, 3 * area], |loader| {
            let stored = loader.values(&format!("{module}.weight"), &[outputs, 3 * area])?;
            let values = by_patches(&stored, [area, 3]);
            let view = [WeightView::F32(&values)];
            let packed = LinearWeight::pack(&view, 3 * area, loader.dtype(), loader.device());
            Ok(packed.map_err(refused(module))?.with_tensor_cores(loader.tensor_cores()))
        })?;
        let bias = has_bias.then(|| loader.bias(&part));
        Ok(Self { weight, bias: bias.transpose()?, site: None })
    }

    /// Loads the convolution `module` of squares of `side²` patches, which follow each other as
    /// rows of `width`. A row of this layer has the patches of a square side by side.
    /// `{module}.weight` is `[outputs, width, side, side]`.
    pub(in crate::model) fn of_squares(
        loader: &mut WeightLoader<'_>,
        module: &str,
        sizes: [usize; 3],
    ) -> Result<Self, ModelError> {
        let part = [Part::new(module.to_owned(), sizes[0])];
        Self::of_squares_alone(loader, module, sizes)?.with_bias(loader, &part)
    }

    /// Loads the same convolution without biases.
    pub(in crate::model) fn of_squares_alone(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [outputs, width, side]: [usize; 3],
    ) -> Result<Self, ModelError> {
        let unit = side * side;
        let weight = loader.packed(module, [outputs, width * unit], |loader| {
            let name = format!("{module}.weight");
            let stored = loader.values(&name, &[outputs, width, side, side])?;
            let values = by_patches(&stored, [width, unit]);
            let view = [WeightView::F32(&values)];
            let packed = LinearWeight::pack(&view, width * unit, loader.dtype(), loader.device());
            Ok(packed.map_err(refused(module))?.with_tensor_cores(loader.tensor_cores()))
        })?;
        Ok(Self { weight, bias: None, site: None })
    }

    /// Returns the same layer with the biases of `parts`.
    pub(in crate::model) fn with_bias(
        self,
        loader: &mut WeightLoader<'_>,
        parts: &[Part],
    ) -> Result<Self, ModelError> {
        Ok(Self { bias: Some(loader.bias(parts)?), ..self })
    }

    /// Returns the same layer with these biases, `[outputs]`.
    pub(in crate::model) fn with_biases(self, biases: WeightVector) -> Self {
        Self { bias: Some(biases), ..self }
    }

    /// Loads the output layer `module`, `[outputs, inputs]`. It has 8 bits where other layers are
    /// quantized to 4, because the likeliest token depends on small differences of its results.
    /// Adapters know the layer as `head`, also where it has the matrix of the embedding.
    pub(in crate::model) fn lm_head(
        loader: &mut WeightLoader<'_>,
        module: &str,
        head: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ModelError> {
        let scheme = loader.quantization().map(|_| QuantizationScheme::Int8);
        let parts = [Part::new(module.to_owned(), outputs)];
        let weight = weight(loader, &parts, inputs, scheme)?;
        let head = [Part::new(head.to_owned(), outputs)];
        Ok(Self { weight, bias: None, site: Some(loader.adapter_sites().add(&head, inputs)) })
    }

    /// Returns the bytes of the weight that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.weight.mapped_bytes() as u64
    }

    /// Returns whether [`Linear::rows`] returns the weight's rows as they are in the checkpoint.
    pub(in crate::model) fn has_rows(&self) -> bool {
        self.weight.has_rows()
    }

    /// Returns rows of the weight itself, `[token_ids.len(), inputs]`, for a tied embedding.
    pub(in crate::model) fn rows(&self, token_ids: &[u32]) -> Tensor<2> {
        tied_embedding(&self.weight, token_ids)
    }

    /// Maps `[rows, inputs]` to `[rows, outputs]`, with the adapters of these rows.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        if !adapters.change(self.site) {
            return linear(x, &self.weight, self.bias.as_ref());
        }
        let y = linear(x.clone(), &self.weight, self.bias.as_ref());
        adapters.add(self.site, y, x)
    }

    /// Returns `act(x)` of the outputs, `[rows, outputs]`.
    pub(in crate::model) fn forward_activated(
        &self,
        x: Tensor<2>,
        activation: Activation,
        adapters: Adapters<'_>,
    ) -> Tensor<2> {
        match adapters.change(self.site) {
            true => activate(self.forward(x, adapters), activation),
            false => linear_activated(x, &self.weight, self.bias.as_ref(), activation),
        }
    }

    /// Returns `act(gate) · up`, `[rows, outputs / 2]`. The gate is the first half of the outputs.
    pub(in crate::model) fn forward_gated(
        &self,
        x: Tensor<2>,
        activation: Activation,
        adapters: Adapters<'_>,
    ) -> Tensor<2> {
        match (&self.bias, activation) {
            (None, Activation::Silu) if !adapters.change(self.site) => {
                linear_swiglu(x, &self.weight)
            }
            _ => gated(self.forward(x, adapters), activation),
        }
    }
}

/// Returns the weight of a layer over squares of `unit` patches with `width` elements each. The
/// checkpoint has the columns of an element of all patches side by side (HF
/// `torch.nn.functional.unfold`). A row here has the patches one after the other.
pub(in crate::model) fn by_patches(stored: &[f32], [width, unit]: [usize; 2]) -> Vec<f32> {
    let row = |row: &[f32]| -> Vec<f32> {
        let columns = (0..unit).flat_map(|patch| (0..width).map(move |at| at * unit + patch));
        columns.map(|column| row[column]).collect()
    };
    stored.chunks_exact(width * unit).flat_map(row).collect()
}

/// Loads the weights of `parts` side by side.
fn weight(
    loader: &mut WeightLoader<'_>,
    parts: &[Part],
    inputs: usize,
    scheme: Option<QuantizationScheme>,
) -> Result<LinearWeight, ModelError> {
    let module = &*parts.first().map(Part::unique_name).unwrap_or_default();
    let shape = [parts.iter().map(|part| part.outputs).sum(), inputs];
    loader.packed(module, shape, |loader| {
        let matrices =
            parts.iter().map(|part| loader.part(part, inputs)).collect::<Result<Vec<_>, _>>()?;
        check_mix(loader, parts, &matrices)?;
        pack(loader, module, matrices, inputs, scheme)
    })
}

/// Refuses matrices of one layer of which only some are quantized, because all of them become
/// floats. If the checkpoint's format may mix, logs a warning instead.
fn check_mix(
    loader: &WeightLoader<'_>,
    parts: &[Part],
    matrices: &[StoredMatrix<'_>],
) -> Result<(), ModelError> {
    let name = |is_quantized: bool| {
        let is_it = |matrix: &StoredMatrix<'_>| {
            matches!(matrix.elements, MatrixElements::Quantized(_)) == is_quantized
        };
        matrices.iter().position(is_it).map(|index| parts[index].module.clone())
    };
    let (Some(quantized), Some(plain)) = (name(true), name(false)) else { return Ok(()) };
    if !loader.may_mix() {
        return Err(ModelError::QuantizedInPart { quantized, plain });
    }
    tracing::warn!(
        quantized,
        plain,
        "computed as one, and kept as floats, as one is not quantized"
    );
    Ok(())
}

/// Packs `matrices` as one weight. If all of them are quantized and can be stacked, they stay as
/// they are. Otherwise they become floats, or are quantized now.
fn pack(
    loader: &mut WeightLoader<'_>,
    module: &str,
    matrices: Vec<StoredMatrix<'_>>,
    inputs: usize,
    scheme: Option<QuantizationScheme>,
) -> Result<LinearWeight, ModelError> {
    let (mut tensors, mut bytes) = (0, 0);
    for matrix in &matrices {
        tensors += matrix.tensor_count;
        bytes += matrix.size_bytes;
    }
    let (dtype, device) = (loader.dtype(), loader.device());
    let packed = match Stack::new(matrices).map_err(refused(module))? {
        Stack::Quantized(parts) => {
            LinearWeight::pack_quantized(parts, loader.activations(), device)
        }
        Stack::Floats(matrices) => {
            let values: Vec<TensorValues<'_>> =
                matrices.iter().map(|matrix| matrix.values(dtype)).collect();
            let views: Vec<_> = values.iter().map(TensorValues::view).collect();
            let packed = match scheme {
                None => LinearWeight::pack(&views, inputs, dtype, device),
                Some(scheme) => LinearWeight::quantize(&views, inputs, scheme, device),
            };
            matrices.iter().for_each(|matrix| loader.release(matrix));
            packed
        }
    };
    loader.count(tensors, bytes);
    let packed = packed.map_err(refused(module))?;
    Ok(packed.with_tensor_cores(loader.tensor_cores()))
}
