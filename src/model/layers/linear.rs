//! Linear layers, several of which may be stacked into one product (HF `nn.Linear`).

use burn::tensor::Tensor;
use playhouse_kernels::{LinearWeight, linear};

use crate::model::ModelError;
use crate::model::load::{WeightLoader, refused};
use crate::weights::{Stack, StoredMatrix, TensorValues};

/// `x · Wᵀ + b`.
#[derive(Debug)]
pub(in crate::model) struct Linear {
    weight: LinearWeight,
    bias: Option<Tensor<1>>,
}

impl Linear {
    /// Loads the modules `parts`, each with its name and number of outputs, as one layer whose
    /// outputs are theirs side by side: `{module}.weight` is `[outputs, inputs]`, in whatever form
    /// the checkpoint stores it, and `{module}.bias`, if wanted, `[outputs]`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        parts: &[(String, usize)],
        inputs: usize,
        has_bias: bool,
    ) -> Result<Self, ModelError> {
        let matrices = parts
            .iter()
            .map(|(module, outputs)| loader.matrix(module, [*outputs, inputs]))
            .collect::<Result<Vec<_>, _>>()?;
        let module = parts.first().map_or("", |(module, _)| module);
        for matrix in &matrices {
            loader.loaded_matrix(matrix);
        }
        let weight = pack(loader, module, matrices, inputs)?;
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
        let matrix = loader.matrix(module, [outputs, inputs])?;
        Ok(Self { weight: pack(loader, module, vec![matrix], inputs)?, bias: None })
    }

    /// From `[rows, inputs]` to `[rows, outputs]`.
    pub(in crate::model) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear(x, &self.weight, self.bias.as_ref())
    }
}

/// Keeps few-bit integers as they are where all of `matrices` are such, and can be stacked; else
/// everything as floats.
fn pack(
    loader: &WeightLoader<'_>,
    module: &str,
    matrices: Vec<StoredMatrix<'_>>,
    inputs: usize,
) -> Result<LinearWeight, ModelError> {
    let matrices = match Stack::new(matrices).map_err(refused(module))? {
        Stack::Quantized(parts) => {
            return LinearWeight::pack_quantized(parts, loader.device()).map_err(refused(module));
        }
        Stack::Floats(matrices) => matrices,
    };
    let values: Vec<TensorValues<'_>> =
        matrices.iter().map(|matrix| matrix.values(loader.dtype())).collect();
    let views: Vec<_> = values.iter().map(TensorValues::view).collect();
    LinearWeight::pack(&views, inputs, loader.dtype(), loader.device()).map_err(refused(module))
}
