//! Loads the tensors of a checkpoint for the layers that are being built.

use burn::tensor::Device;
use playhouse_kernels::{
    ActivationDtype, EmbeddingTable, KernelError, LinearWeight, QuantizationScheme, TensorCores,
    WeightDtype, WeightVector,
};

use super::{
    LoadOptions, LoadProgress, ModelError, QuantizedWeights,
    layers::{self, Linear},
};
use crate::weights::{Checkpoint, MatrixElements, StoredMatrix, StoredTensor, WeightsCache};

/// Loads the tensors of a checkpoint onto the model's device, and counts them.
///
/// Matrices are quantized as the settings or the checkpoint define. With a weights cache, they come
/// packed from it.
pub struct WeightLoader<'a> {
    checkpoint: &'a Checkpoint,
    dtype: WeightDtype,
    quantization: Option<QuantizationScheme>,
    quantized: Option<QuantizedWeights>,
    device: &'a Device,
    tensor_cores: TensorCores,
    cache: Option<WeightsCache>,
    report: &'a mut dyn FnMut(LoadProgress),
    progress: LoadProgress,
}

impl<'a> WeightLoader<'a> {
    pub(super) fn new(
        checkpoint: &'a Checkpoint,
        dtype: WeightDtype,
        options: &'a LoadOptions,
        quantized: Option<QuantizedWeights>,
        cache: Option<WeightsCache>,
        report: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        let progress = LoadProgress {
            tensors_total: checkpoint.tensor_count(),
            bytes_total: checkpoint.size_bytes(),
            is_cached: cache.as_ref().is_some_and(WeightsCache::is_read),
            ..LoadProgress::default()
        };
        report(progress);
        let LoadOptions { quantization, ref device, tensor_cores, .. } = *options;
        Self {
            checkpoint,
            dtype,
            quantization,
            quantized,
            device,
            tensor_cores,
            cache,
            report,
            progress,
        }
    }

    /// Returns the type that weights are kept in.
    #[must_use]
    pub fn dtype(&self) -> WeightDtype {
        self.dtype
    }

    /// Returns the quantization of linear layers at load.
    pub(super) fn quantization(&self) -> Option<QuantizationScheme> {
        self.quantization
    }

    /// Returns the format of quantized weights, if any are.
    #[must_use]
    pub fn quantized_weights(&self) -> Option<&QuantizedWeights> {
        self.quantized.as_ref()
    }

    /// Returns the dtype of activations that are multiplied with quantized weights.
    pub(super) fn activations(&self) -> ActivationDtype {
        let quantized = self.quantized.as_ref();
        quantized.map_or(self.dtype.into(), |quantized| quantized.activations)
    }

    /// Returns the device that the model will run on.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// Returns whether products and attention may use a GPU's tensor cores.
    #[must_use]
    pub fn tensor_cores(&self) -> TensorCores {
        self.tensor_cores
    }

    /// Returns the tensor `name` in the format of its file, for layers that this loader does not
    /// make. The caller must pass it to [`WeightLoader::loaded`] after it has read it.
    ///
    /// # Errors
    /// [`ModelError::Weights`] if the tensor is missing, or its shape is not `expected`.
    pub fn tensor(&self, name: &str, expected: &[usize]) -> Result<StoredTensor<'a>, ModelError> {
        Ok(self.checkpoint.tensor(name, expected)?)
    }

    /// Returns the weight of `module`, `[outputs, inputs]`, which may be quantized.
    pub(super) fn matrix(
        &self,
        module: &str,
        shape: [usize; 2],
    ) -> Result<StoredMatrix<'a>, ModelError> {
        Ok(self.checkpoint.matrix(module, shape)?)
    }

    /// Returns the weight `{module}.weight`, `[outputs, inputs]`, for the operation `linear`.
    ///
    /// # Errors
    /// [`ModelError::Weights`] if it is missing or has another shape, [`ModelError::Device`] if the
    /// device has no memory for it.
    pub fn linear(
        &mut self,
        module: &str,
        [outputs, inputs]: [usize; 2],
    ) -> Result<LinearWeight, ModelError> {
        let parts = [(module.to_owned(), outputs)];
        Ok(Linear::load(self, &parts, inputs, false)?.into_weight())
    }

    /// Returns the table `{module}.weight`, `[vocab, hidden]`, for the operation `embedding`.
    ///
    /// # Errors
    /// As [`WeightLoader::linear`].
    pub fn embedding(
        &mut self,
        module: &str,
        [vocab, hidden]: [usize; 2],
    ) -> Result<EmbeddingTable, ModelError> {
        layers::embedding_table(self, module, vocab, hidden)
    }

    /// Returns the tensor `name`, `[length]`, as f32: a bias, or the weight of a norm.
    ///
    /// # Errors
    /// As [`WeightLoader::linear`].
    pub fn vector(&mut self, name: &str, length: usize) -> Result<WeightVector, ModelError> {
        self.stacked_vector(&[(name.to_owned(), length)])
    }

    /// Returns several vectors as one, the first one first.
    pub(super) fn stacked_vector(
        &mut self,
        parts: &[(String, usize)],
    ) -> Result<WeightVector, ModelError> {
        let mut values = Vec::new();
        for (name, length) in parts {
            let tensor = self.tensor(name, &[*length])?;
            values.extend(tensor.values().view().to_f32());
            self.loaded(&tensor);
        }
        let name = parts.first().map_or("", |(name, _)| name);
        WeightVector::new(values, self.device).map_err(refused(name))
    }

    /// Returns the weight `name`, `[outputs, inputs]`, from the cache, or by default from `pack`.
    pub(super) fn packed(
        &mut self,
        name: &str,
        shape: [usize; 2],
        pack: impl FnOnce(&mut Self) -> Result<LinearWeight, ModelError>,
    ) -> Result<LinearWeight, ModelError> {
        let cached = self.cache.as_mut().and_then(|cache| cache.get(name, shape));
        let weight = match cached {
            Some(weight) => weight,
            None => {
                self.progress.is_cached = false;
                let weight = pack(self)?;
                if let Some(cache) = &mut self.cache {
                    cache.keep(name, &weight);
                }
                weight
            }
        };
        Ok(weight.with_activations(self.activations()))
    }

    /// Counts a tensor as loaded, and releases its pages, because it is not read again.
    pub fn loaded(&mut self, tensor: &StoredTensor<'_>) {
        self.checkpoint.release(tensor);
        self.count(1, tensor.size_bytes() as u64);
    }

    /// Returns whether, of matrices that are computed as one, some may be quantized and some not.
    /// GGUF files mix formats, as llama.cpp does. In other checkpoints this is a fault in a list of
    /// exceptions, which vLLM refuses too.
    pub(super) fn may_mix(&self) -> bool {
        self.checkpoint.is_gguf()
    }

    /// Releases the pages of a matrix that is not read again.
    pub(super) fn release(&self, matrix: &StoredMatrix<'_>) {
        if let MatrixElements::Dense(tensor) = &matrix.elements {
            self.checkpoint.release(tensor);
        }
    }

    /// Counts tensors as packed, and their bytes in the checkpoint.
    pub(super) fn count(&mut self, tensors: usize, bytes: u64) {
        self.progress.tensors += tensors;
        self.progress.bytes += bytes;
        (self.report)(self.progress);
    }

    pub(super) fn finish(self) {
        if let Some(cache) = self.cache {
            cache.finish();
        }
        // The totals of dummy weights are not known before.
        let LoadProgress { tensors, tensors_total, bytes, bytes_total, .. } = self.progress;
        let (tensors, bytes) = (tensors.max(tensors_total), bytes.max(bytes_total));
        (self.report)(LoadProgress { tensors, bytes, ..self.progress });
    }
}

impl std::fmt::Debug for WeightLoader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeightLoader").field("progress", &self.progress).finish_non_exhaustive()
    }
}

/// Returns a function for `map_err` that adds the name of the part to a kernel's error.
pub(super) fn refused(part: &str) -> impl FnOnce(KernelError) -> ModelError {
    let part = part.to_owned();
    move |source| ModelError::Device { part, source }
}
