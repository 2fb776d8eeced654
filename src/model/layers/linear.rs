//! Linear layers, several of which may be stacked into one product (HF `nn.Linear`).

use burn::tensor::Tensor;
use playhouse_kernels::{LinearWeight, QuantizationScheme, linear};

use crate::model::ModelError;
use crate::model::load::{WeightLoader, refused};
use crate::weights::{StoredTensor, TensorValues};

/// `x · Wᵀ + b`.
#[derive(Debug)]
pub(in crate::model) struct Linear {
    weight: LinearWeight,
    bias: Option<Tensor<1>>,
}

impl Linear {
    /// Loads the modules `parts`, each with its name and number of outputs, as one layer whose
    /// outputs are theirs side by side: `{module}.weight` is `[outputs, inputs]`, and
    /// `{module}.bias`, if wanted, `[outputs]`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        parts: &[(String, usize)],
        inputs: usize,
        has_bias: bool,
    ) -> Result<Self, ModelError> {
        let weight = weight(loader, parts, inputs, loader.quantization())?;
        let bias = has_bias.then(|| {
            let biases: Vec<_> =
                parts.iter().map(|(module, n)| (format!("{module}.bias"), *n)).collect();
            loader.vector(&biases)
        });
        Ok(Self { weight, bias: bias.transpose()? })
    }

    /// The output layer `module`, `[outputs, inputs]`. Which token is the likeliest hangs on small
    /// differences of its results: where others are quantized to 4 bits it has 8.
    pub(in crate::model) fn lm_head(
        loader: &mut WeightLoader<'_>,
        module: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ModelError> {
        let scheme = lm_head_scheme(loader);
        let weight = weight(loader, &[(module.to_owned(), outputs)], inputs, scheme)?;
        Ok(Self { weight, bias: None })
    }

    /// An output layer whose weight is that of the embedding `module`, `[outputs, inputs]`.
    pub(in crate::model) fn tied(
        loader: &WeightLoader<'_>,
        module: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ModelError> {
        let tensor = loader.tensor(&format!("{module}.weight"), &[outputs, inputs])?;
        let weight = pack(loader, module, &[tensor], inputs, lm_head_scheme(loader))?;
        Ok(Self { weight, bias: None })
    }

    /// From `[rows, inputs]` to `[rows, outputs]`.
    pub(in crate::model) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear(x, &self.weight, self.bias.as_ref())
    }
}

fn lm_head_scheme(loader: &WeightLoader<'_>) -> Option<QuantizationScheme> {
    loader.quantization().map(|_| QuantizationScheme::Int8)
}

/// The weights of `parts`, side by side.
fn weight(
    loader: &mut WeightLoader<'_>,
    parts: &[(String, usize)],
    inputs: usize,
    scheme: Option<QuantizationScheme>,
) -> Result<LinearWeight, ModelError> {
    let tensors = parts
        .iter()
        .map(|(module, outputs)| loader.tensor(&format!("{module}.weight"), &[*outputs, inputs]))
        .collect::<Result<Vec<_>, _>>()?;
    let module = parts.first().map_or("", |(module, _)| module);
    let weight = pack(loader, module, &tensors, inputs, scheme)?;
    for tensor in &tensors {
        loader.loaded(tensor);
    }
    Ok(weight)
}

fn pack(
    loader: &WeightLoader<'_>,
    module: &str,
    tensors: &[StoredTensor<'_>],
    inputs: usize,
    scheme: Option<QuantizationScheme>,
) -> Result<LinearWeight, ModelError> {
    let values: Vec<TensorValues<'_>> = tensors.iter().map(StoredTensor::values).collect();
    let views: Vec<_> = values.iter().map(TensorValues::view).collect();
    let packed = match scheme {
        None => LinearWeight::pack(&views, inputs, loader.dtype(), loader.device()),
        Some(scheme) => LinearWeight::quantize(&views, inputs, scheme, loader.device()),
    };
    packed.map_err(refused(module))
}
