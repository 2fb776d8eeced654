//! Matrices to which an adapter is added as they are read: `W + (B · A) · scale`. Its tensors are
//! in a file of their own with PEFT's names, as in the folders of `jina-embeddings-v5`.
//!
//! | tensor | shape |
//! |---|---|
//! | `base_model.model.{module}.lora_A.weight` | `[rank, columns]` |
//! | `base_model.model.{module}.lora_B.weight` | `[rows, rank]` |

use std::borrow::Cow;
use std::mem;
use std::path::PathBuf;

use super::task_adapters::add_product;
use super::{Checkpoint, WeightsFile};
use crate::weights::{StoredDtype, StoredTensor, WeightsError};

const FILE: &str = "adapter_model.safetensors";
/// The beginning of the names of an adapter's tensors in its file.
const PEFT: &str = "base_model.model.";
/// The beginning of their names among those of the checkpoint.
const PLACE: &str = "merged adapter: ";
/// The module that names of modules may lack.
const BASE: &str = "model.";
const WEIGHT: &str = ".weight";
const PARTS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// An adapter to merge.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedAdapter {
    /// Its folder.
    pub folder: PathBuf,
    /// The rank of its matrices.
    pub rank: usize,
    /// The factor of their product.
    pub scale: f32,
}

impl Checkpoint {
    /// Returns the same checkpoint, to whose matrices `adapter` is added.
    ///
    /// # Errors
    /// [`WeightsError`] of the adapter's file, and [`WeightsError::Unused`] for a tensor that
    /// belongs to no matrix of the checkpoint.
    pub fn merging(mut self, adapter: Option<&MergedAdapter>) -> Result<Self, WeightsError> {
        let Some(MergedAdapter { folder, rank, scale }) = adapter else { return Ok(self) };
        let mut file = WeightsFile::open(folder.join(FILE))?;
        for name in file.entries.keys() {
            let module = PARTS.iter().find_map(|part| name.strip_suffix(part)).map(plain);
            let has = |module: &str| self.file_of.contains_key(&format!("{module}{WEIGHT}"));
            if !module.is_some_and(|module| has(module) || has(&format!("{BASE}{module}"))) {
                let why = "the adapter of a task changes matrices of the model alone, by lora_A \
                           and lora_B";
                let (path, tensor) = (file.path.clone(), name.clone());
                return Err(WeightsError::Unused { path, tensor, why });
            }
        }
        let entries = mem::take(&mut file.entries).into_iter();
        file.entries =
            entries.map(|(name, entry)| (format!("{PLACE}{}", plain(&name)), entry)).collect();
        let index = self.files.len();
        self.file_of.extend(file.entries.keys().map(|name| (name.clone(), index)));
        self.files.push(file);
        self.merged = Some((*rank, *scale));
        Ok(self)
    }

    /// Returns whether the tensor `name` of the files belongs to the adapter.
    pub(super) fn is_merged(&self, name: &str) -> bool {
        self.merged.is_some() && name.starts_with(PLACE)
    }

    /// Returns the tensor `name` with the adapter, in float32 if that changes it.
    ///
    /// # Errors
    /// As [`Checkpoint::tensor`], for the tensors of the adapter.
    pub(super) fn with_merged<'t>(
        &'t self,
        name: &str,
        tensor: StoredTensor<'t>,
    ) -> Result<StoredTensor<'t>, WeightsError> {
        let Some((rank, scale)) = self.merged else { return Ok(tensor) };
        let stored = self.stored_name(name);
        let module = stored.strip_suffix(WEIGHT).filter(|module| !module.starts_with(PLACE));
        let [a, b] = PARTS.map(|part| format!("{PLACE}{}{part}", plain(module.unwrap_or(""))));
        let &[rows, columns] = tensor.shape() else { return Ok(tensor) };
        if module.is_none() || !self.file_of.contains_key(&a) {
            return Ok(tensor);
        }
        let matrix = |name: &str, shape: [usize; 2]| {
            Ok::<_, WeightsError>(self.tensor(name, &shape)?.values().view().to_f32())
        };
        let (left, right) = (matrix(&b, [rows, rank])?, matrix(&a, [rank, columns])?);
        let mut values = tensor.values().view().to_f32();
        add_product(&mut values, [&left, &right], [rank, columns], scale);
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.release(&tensor);
        Ok(StoredTensor { dtype: StoredDtype::F32, bytes: Cow::Owned(bytes), ..tensor })
    }
}

/// Returns a name without the modules that hold the whole model.
fn plain(name: &str) -> &str {
    let name = name.strip_prefix(PEFT).unwrap_or(name);
    name.strip_prefix(BASE).unwrap_or(name)
}
