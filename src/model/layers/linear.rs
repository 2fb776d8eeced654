//! Linear layers, several of which may be stacked into one product (HF `nn.Linear`).

use burn::tensor::Tensor;
use playhouse_kernels::{LinearWeight, linear, linear_swiglu, swiglu};

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
        let tensors = parts
            .iter()
            .map(|(module, outputs)| {
                loader.tensor(&format!("{module}.weight"), &[*outputs, inputs])
            })
            .collect::<Result<Vec<_>, _>>()?;
        let module = parts.first().map_or("", |(module, _)| module);
        let weight = pack(loader, module, &tensors, inputs)?;
        for tensor in &tensors {
            loader.loaded(tensor);
        }
        let bias = has_bias.then(|| {
            let biases: Vec<_> =
                parts.iter().map(|(module, n)| (format!("{module}.bias"), *n)).collect();
            loader.vector(&biases)
        });
        Ok(Self { weight, bias: bias.transpose()? })
    }

    /// An output layer whose weight is that of the embedding `module`, `[outputs, inputs]`.
    pub(in crate::model) fn tied(
        loader: &WeightLoader<'_>,
        module: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ModelError> {
        let tensor = loader.tensor(&format!("{module}.weight"), &[outputs, inputs])?;
        Ok(Self { weight: pack(loader, module, &[tensor], inputs)?, bias: None })
    }

    /// From `[rows, inputs]` to `[rows, outputs]`.
    pub(in crate::model) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear(x, &self.weight, self.bias.as_ref())
    }

    /// `silu(gate) · up` of the outputs, the gate being their first half: to `[rows, outputs / 2]`.
    pub(in crate::model) fn forward_swiglu(&self, x: Tensor<2>) -> Tensor<2> {
        match &self.bias {
            None => linear_swiglu(x, &self.weight),
            Some(_) => swiglu(self.forward(x)),
        }
    }
}

fn pack(
    loader: &WeightLoader<'_>,
    module: &str,
    tensors: &[StoredTensor<'_>],
    inputs: usize,
) -> Result<LinearWeight, ModelError> {
    let values: Vec<TensorValues<'_>> = tensors.iter().map(StoredTensor::values).collect();
    let views: Vec<_> = values.iter().map(TensorValues::view).collect();
    LinearWeight::pack(&views, inputs, loader.dtype(), loader.device()).map_err(refused(module))
}
