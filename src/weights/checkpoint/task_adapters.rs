//! Matrices with low-rank adapters of tasks beside them, as in the authors' folder of
//! `jina-embeddings-v3` (torch's `parametrizations`, <https://arxiv.org/abs/2409.10173>).
//!
//! | tensor | of a linear layer | of an embedding |
//! |---|---|---|
//! | `{module}.parametrizations.weight.original` | `[rows, columns]` | `[rows, columns]` |
//! | `{module}.parametrizations.weight.0.lora_A` | `[count, rank, columns]` | `[count, rows, rank]` |
//! | `{module}.parametrizations.weight.0.lora_B` | `[count, rows, rank]` | `[count, rank, columns]` |

use std::borrow::Cow;

use super::Checkpoint;
use crate::weights::{StoredDtype, StoredTensor, WeightsError};

const WEIGHT: &str = ".weight";
const ORIGINAL: &str = ".parametrizations.weight.original";
const ADAPTERS: &str = ".parametrizations.weight.0.lora_";

/// The adapters of each matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskAdapters {
    /// Number of adapters: one for each task.
    pub count: usize,
    /// Their rank.
    pub rank: usize,
    /// The factor of the product of an adapter's matrices.
    pub scale: f32,
    /// The adapter that is added to the matrices. `None`: they stay as they are.
    pub chosen: Option<usize>,
}

impl Checkpoint {
    /// Returns the same checkpoint, whose matrices may have adapters.
    #[must_use]
    pub fn with_task_adapters(mut self, adapters: Option<TaskAdapters>) -> Self {
        self.task_adapters = adapters;
        self
    }

    /// Returns whether the tensor `name` of the files belongs to an adapter.
    pub(super) fn is_of_adapter(&self, name: &str) -> bool {
        self.task_adapters.is_some() && name.contains(ADAPTERS)
    }

    /// Returns the name in the files of a matrix that has adapters.
    pub(super) fn original_name(&self, name: &str) -> Option<String> {
        self.task_adapters?;
        let original = format!("{}{ORIGINAL}", name.strip_suffix(WEIGHT)?);
        self.file_of.contains_key(&original).then_some(original)
    }

    /// Returns the model's name of the tensor `name` of the files.
    pub(super) fn adapted_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match name.strip_suffix(ORIGINAL).filter(|_| self.task_adapters.is_some()) {
            Some(module) => Cow::Owned(format!("{module}{WEIGHT}")),
            None => Cow::Borrowed(name),
        }
    }

    /// Returns the tensor `name` with the adapter of the chosen task, in float32.
    ///
    /// # Errors
    /// As [`Checkpoint::tensor`], for the tensors of the adapter.
    pub(super) fn adapted<'t>(
        &'t self,
        name: &str,
        tensor: StoredTensor<'t>,
    ) -> Result<StoredTensor<'t>, WeightsError> {
        let stored = self.stored_name(name);
        let chosen = self.task_adapters.and_then(|adapters| Some((adapters, adapters.chosen?)));
        let (Some((adapters, index)), Some(module)) = (chosen, stored.strip_suffix(ORIGINAL))
        else {
            return Ok(tensor);
        };
        let &[rows, columns] = tensor.shape() else { return Ok(tensor) };
        let TaskAdapters { count, rank, scale, .. } = adapters;
        let [a, b] = ["A", "B"].map(|part| format!("{module}{ADAPTERS}{part}"));
        let is_linear = self.stored_shape(&a).is_some_and(|it| *it == [count, rank, columns]);
        let (left, right) = if is_linear { (b, a) } else { (a, b) };
        let matrix = |name: &str, shape: [usize; 2]| {
            let stored = self.tensor(name, &[count, shape[0], shape[1]])?;
            Ok::<_, WeightsError>(stored.slice(index, shape).values().view().to_f32())
        };
        let (left, right) = (matrix(&left, [rows, rank])?, matrix(&right, [rank, columns])?);
        let mut values = tensor.values().view().to_f32();
        add_product(&mut values, [&left, &right], [rank, columns], scale);
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.release(&tensor);
        Ok(StoredTensor { dtype: StoredDtype::F32, bytes: Cow::Owned(bytes), ..tensor })
    }
}

/// Adds `left · right · scale` to a matrix of `columns`, where `rank` is the number of columns of
/// `left`.
pub(super) fn add_product(
    values: &mut [f32],
    [left, right]: [&[f32]; 2],
    [rank, columns]: [usize; 2],
    scale: f32,
) {
    let each = values.chunks_exact_mut(columns.max(1)).zip(left.chunks_exact(rank.max(1)));
    for (row, factors) in each {
        for (column, value) in row.iter_mut().enumerate() {
            let products = factors.iter().enumerate();
            let sum: f32 = products.map(|(k, x)| x * right[k * columns + column]).sum();
            *value += sum * scale;
        }
    }
}
