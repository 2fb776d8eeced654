//! Loads the tensors of a checkpoint for the layers that are being built.

use std::path::PathBuf;

use burn::tensor::Device;
use playhouse_kernels::{
    ActivationDtype, EmbeddingTable, KernelError, LinearWeight, QuantizationScheme, TensorCores,
    WeightDtype, WeightVector,
};

use super::{
    AdapterSites, LoadOptions, LoadProgress, ModelError, QuantizedWeights,
    layers::{self, Arrangement, Linear, Part, separated},
};
use crate::weights::{
    Checkpoint, MatrixElements, StoredMatrix, StoredTensor, WeightsCache, WeightsError,
};

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
    adapter_sites: AdapterSites,
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
            adapter_sites: AdapterSites::new(dtype, device),
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

    /// Returns the sites of adapters that were registered so far.
    pub(super) fn adapter_sites(&mut self) -> &mut AdapterSites {
        &mut self.adapter_sites
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
        let parts = [Part::new(module.to_owned(), outputs)];
        Linear::weight(self, &parts, inputs)
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
        let values = self.values(name, &[length])?;
        self.on_device(name, values)
    }

    /// Returns the same with one added to each element.
    pub(super) fn vector_plus_one(
        &mut self,
        name: &str,
        length: usize,
    ) -> Result<WeightVector, ModelError> {
        let mut values = self.values(name, &[length])?;
        values.iter_mut().for_each(|value| *value += 1.0);
        self.on_device(name, values)
    }

    /// Returns the only element of the tensor `name`.
    pub(super) fn number(&mut self, name: &str, shape: &[usize]) -> Result<f32, ModelError> {
        Ok(self.values(name, shape)?.first().copied().unwrap_or_default())
    }

    /// Returns the elements of the tensor `name` as f32, row-major.
    pub(super) fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let tensor = self.tensor(name, shape)?;
        let values = tensor.values().view().to_f32();
        self.loaded(&tensor);
        Ok(values)
    }

    /// Returns the same for a tensor that several layers read. It does not count as loaded.
    pub(super) fn shared_values(
        &self,
        name: &str,
        shape: &[usize],
    ) -> Result<Vec<f32>, ModelError> {
        Ok(self.tensor(name, shape)?.values().view().to_f32())
    }

    /// Returns whether the checkpoint has the tensor `name`. Dummy weights have none by name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.checkpoint.shape(name).is_some()
    }

    /// Returns whether the checkpoint is a GGUF file.
    pub(super) fn is_gguf(&self) -> bool {
        self.checkpoint.is_gguf()
    }

    /// Returns whether the checkpoint is one of AWQ and has the tensor `name`.
    pub(super) fn has_of_awq(&self, name: &str) -> bool {
        self.checkpoint.is_awq() && self.has(name)
    }

    /// Returns the tensor `name` of `len` integers.
    pub(super) fn integers(&mut self, name: &str, len: usize) -> Result<Vec<i64>, ModelError> {
        Ok(self.checkpoint.integers(name, len)?)
    }

    /// Returns the file that holds the tensor `name`.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.checkpoint.path_of(name).to_owned()
    }

    /// Returns the number of rows of the matrix `{module}.weight`, if there is one.
    pub(super) fn num_rows(&self, module: &str) -> Option<usize> {
        self.checkpoint.num_rows(module)
    }

    /// Returns the logarithms of the rates at which states decay: the tensor `name`. GGUF files
    /// have the rates themselves, with a sign.
    pub(super) fn log_rates(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<Vec<f32>, ModelError> {
        let values = self.values(name, shape)?;
        if !self.checkpoint.is_gguf() {
            return Ok(values);
        }
        if let Some(rate) = values.iter().find(|rate| !(rate.is_finite() && **rate <= 0.0)) {
            let path = self.checkpoint.path_of(name).to_owned();
            let reason = format!("a rate of {rate}; expected a number of 0 or less");
            return Err(WeightsError::Value { path, tensor: name.to_owned(), reason }.into());
        }
        Ok(values.iter().map(|rate| f64::from(-rate).ln() as f32).collect())
    }

    /// Returns `values`, which come from the tensor `name`, on the model's device.
    pub(super) fn on_device(
        &self,
        name: &str,
        values: Vec<f32>,
    ) -> Result<WeightVector, ModelError> {
        WeightVector::new(values, self.device).map_err(refused(name))
    }

    /// Returns the bias of each expert, whose parts are matrices of the modules of `parts`: that of
    /// the first part first. A module has `{module}_bias` or `{module}.bias`, `[count, outputs]`.
    pub(super) fn expert_biases(
        &mut self,
        parts: &[Part],
    ) -> Result<Vec<WeightVector>, ModelError> {
        let (mut biases, mut first) = (Vec::new(), None);
        for Part { module, outputs, arrangement } in parts {
            let (name, count, order) = match *arrangement {
                Arrangement::Fused { count, is_interleaved, .. } => {
                    let order = is_interleaved.then(|| separated(*outputs));
                    (format!("{module}_bias"), count, order)
                }
                Arrangement::Slice { count, .. } => (format!("{module}.bias"), count, None),
                _ => continue,
            };
            let stored = self.values(&name, &[count, *outputs])?;
            biases.resize(count, Vec::new());
            for (bias, stored) in biases.iter_mut().zip(stored.chunks_exact(*outputs)) {
                match &order {
                    None => bias.extend(stored),
                    Some(order) => bias.extend(order.iter().map(|at| stored[*at as usize])),
                }
            }
            first.get_or_insert(name);
        }
        let name = first.unwrap_or_default();
        biases.into_iter().map(|bias| self.on_device(&name, bias)).collect()
    }

    /// Returns the biases of `parts` as one vector, the first part first.
    pub(super) fn bias(&mut self, parts: &[Part]) -> Result<WeightVector, ModelError> {
        let mut biases = Vec::new();
        for Part { module, outputs, arrangement } in parts {
            let stored = match arrangement {
                Arrangement::SomeRows { of, .. } => *of,
                _ => *outputs,
            };
            let stored = self.values(&format!("{module}.bias"), &[stored])?;
            match arrangement {
                Arrangement::Rows(rows) | Arrangement::SomeRows { rows, .. } => {
                    biases.extend(rows.iter().map(|row| stored[*row as usize]));
                }
                Arrangement::AsStored
                | Arrangement::Transposed
                | Arrangement::Slice { .. }
                | Arrangement::Fused { .. }
                | Arrangement::FusedByOutput { .. }
                | Arrangement::Below { .. } => biases.extend(stored),
            }
        }
        let module = parts.first().map_or("", |part| &part.module);
        self.on_device(&format!("{module}.bias"), biases)
    }

    /// Returns the weight of `part`, `[outputs, inputs]`, in the order of its outputs.
    pub(super) fn part(&self, part: &Part, inputs: usize) -> Result<StoredMatrix<'a>, ModelError> {
        let Part { module, outputs, arrangement } = part;
        match arrangement {
            Arrangement::AsStored => self.matrix(module, [*outputs, inputs]),
            Arrangement::Rows(rows) => Ok(self.matrix(module, [*outputs, inputs])?.with_rows(rows)),
            Arrangement::SomeRows { rows, of } => {
                let matrix = self.matrix(module, [*of, inputs])?.with_rows(rows);
                // The module counts with the part that has its first row.
                let is_first = rows.first() == Some(&0);
                Ok(if is_first { matrix } else { matrix.uncounted() })
            }
            // Quantizers store every matrix as `[outputs, inputs]`.
            Arrangement::Transposed if self.checkpoint.is_in_parts(module) => {
                self.matrix(module, [*outputs, inputs])
            }
            Arrangement::Transposed => {
                let matrix = self.matrix(module, [inputs, *outputs])?;
                let module = || module.clone();
                matrix
                    .transposed()
                    .ok_or_else(|| ModelError::QuantizedTransposed { module: module() })
            }
            Arrangement::Slice { index, count } => {
                Ok(self.checkpoint.matrix_of(module, *index, [*count, *outputs, inputs])?)
            }
            Arrangement::FusedByOutput { index, count } => {
                let tensor = self.tensor(module, &[*count, *outputs, inputs])?;
                Ok(StoredMatrix::slice(tensor, *index, [*outputs, inputs]))
            }
            Arrangement::Below { index, count, is_transposed: false } => {
                let tensor = self.tensor(module, &[count * outputs, inputs])?;
                Ok(StoredMatrix::slice(tensor, *index, [*outputs, inputs]))
            }
            Arrangement::Below { index, count, is_transposed: true } => {
                let tensor = self.tensor(module, &[count * inputs, *outputs])?;
                let matrix = StoredMatrix::slice(tensor, *index, [inputs, *outputs]);
                let module = || module.clone();
                matrix
                    .transposed()
                    .ok_or_else(|| ModelError::QuantizedTransposed { module: module() })
            }
            Arrangement::Fused { index, count, is_interleaved } => {
                let shape = [*outputs, inputs];
                let matrix = self.checkpoint.fused_matrix(module, *index, *count, shape)?;
                Ok(match is_interleaved {
                    true => matrix.with_rows(&separated(*outputs)),
                    false => matrix,
                })
            }
        }
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
        let bytes = self.progress.bytes + bytes;
        self.progress.bytes = match self.progress.bytes_total {
            // The total of dummy weights is not known.
            0 => bytes,
            // A matrix with an adapter is larger than what its file holds.
            total => bytes.min(total),
        };
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
