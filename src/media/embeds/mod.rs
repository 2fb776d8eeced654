//! Embeddings that a client sends in the place of an image or a sound. They are tensors in files of
//! `torch.save` or of safetensors. Nothing in a file is run.

mod file;
mod layout;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use playhouse_actors::{
    logic::request::media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    ports::MediaError,
};

use self::file::FileTensor;
pub(crate) use self::layout::EmbedsLayout;

/// The field with the sizes of an image, in models whose positions have three axes.
const GRID: &str = "image_grid_thw";

impl EmbedsLayout {
    /// Returns whether items of a kind may come as embeddings.
    pub(crate) fn takes(&self, modality: Modality) -> bool {
        match modality {
            Modality::Image => self.takes_images,
            Modality::Audio => true,
            Modality::Video | Modality::Text => false,
        }
    }

    /// Reads the embeddings of one item. `files` are tensors by the names of their fields. The item
    /// may have up to `most` embeddings.
    ///
    /// # Errors
    /// [`MediaError::Embeds`] if a file is broken, or its shape is not the model's.
    pub(crate) fn read(
        &self,
        modality: Modality,
        files: &BTreeMap<String, Arc<[u8]>>,
        most: usize,
    ) -> Result<ProcessedMedia, MediaError> {
        let field = format!("{}_embeds", modality.as_str());
        let refuse = |reason: String| Err(MediaError::Embeds { modality, reason });
        if !self.takes(modality) {
            return refuse(format!("{field}: this model takes none"));
        }
        let needs_grid = modality == Modality::Image && self.merge.is_some();
        if let Some(name) =
            files.keys().find(|name| **name != field && !(needs_grid && **name == GRID))
        {
            return refuse(format!("{name} is not a field of this model's {field}"));
        }
        let tensor = |name: &str| -> Result<Option<FileTensor>, MediaError> {
            let read = files.get(name).map(|bytes| file::tensor(bytes)).transpose();
            let broken = |why| MediaError::Embeds { modality, reason: format!("{name}: {why}") };
            read.map_err(broken)
        };
        let Some(embeds) = tensor(&field)? else {
            return refuse(format!("{field} has no tensor of this name"));
        };
        let (num_embeds, rows) = self.rows(modality, embeds, most)?;
        let grid = match (needs_grid, tensor(GRID)?) {
            (false, _) => None,
            (true, Some(grid)) => Some(self.grid(&grid, num_embeds)?),
            (true, None) => {
                return refuse(format!(
                    "{field} of this model need {GRID}: send {{\"{field}\": …, \"{GRID}\": …}}"
                ));
            }
        };
        let layers = 0..1 + self.num_layers;
        let tensors = layers.map(|layer| self.layer(&rows, layer)).collect();
        Ok(ProcessedMedia { modality, tensors, num_embeds, grid })
    }

    /// Returns the part of all rows that belongs to one layer: `[num_embeds, hidden_size]`.
    fn layer(&self, rows: &[f32], layer: usize) -> MediaTensor {
        let (hidden_size, width) = (self.hidden_size, self.hidden_size * (1 + self.num_layers));
        let part = layer * hidden_size..(layer + 1) * hidden_size;
        let rows = rows.chunks_exact(width);
        let shape = vec![rows.len(), hidden_size];
        let data: Vec<u8> =
            rows.flat_map(|row| &row[part.clone()]).flat_map(|value| value.to_le_bytes()).collect();
        MediaTensor { shape, dtype: MediaDtype::Embedding, data: data.into() }
    }
}
